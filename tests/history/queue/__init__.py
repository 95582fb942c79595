"""Histories of producers and consumers, and a judge of what a queue may have done to them."""
