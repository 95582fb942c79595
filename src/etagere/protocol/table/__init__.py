"""The table service over REST: addresses, and what turns requests into commands and back."""
