"""Tests of the rules: every cell of every table, stated independently of the code."""
