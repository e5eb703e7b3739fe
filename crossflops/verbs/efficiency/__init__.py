"""The verb `efficiency`: whose work, which peaks, and the parts of an answer."""
