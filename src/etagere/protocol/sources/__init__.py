"""The sources of copies and of uploads from URLs."""
