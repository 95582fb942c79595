"""Tests of the operations, with every engine."""
