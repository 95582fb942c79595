"""Tests of the codecs: literal bytes both ways, and documents that were never meant to be read."""
