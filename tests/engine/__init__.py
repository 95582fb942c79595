"""Tests of the engines: one suite for all of them, and what is particular to each."""
