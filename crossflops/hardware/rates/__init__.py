"""From a count and a speed to a rate, and its share of a peak."""
