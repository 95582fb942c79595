"""Tests of the relay between cells."""
