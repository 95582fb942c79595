"""Tests of the codecs: literal bytes in both directions, and malformed documents."""
