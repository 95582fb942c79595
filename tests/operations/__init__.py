"""Tests of the operations, over every engine."""
