"""Tests of the engines: a conformance suite for all of them, and tests for each one."""
