"""Replaces the recording and playback tools that Microsoft's tests import: every test runs live.

This directory is on the path of the tests, so `devtools_testutils` and `azure.mgmt.storage` are
found in it under the names that the tests expect.
"""
