"""Tests of the rules: every cell of every table, written out apart from the code."""
