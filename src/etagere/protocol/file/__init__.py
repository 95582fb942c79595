"""The file service over REST."""
