"""Tests of Étagère."""
