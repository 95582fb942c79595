"""The queue service over REST: routes, and what turns requests into commands and back."""
