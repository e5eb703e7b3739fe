"""What a runtime executed, joined to what was counted."""
