"""Stands in for what Microsoft's tests import to record and replay: here every test runs live.

This directory is on the path of the tests, so `devtools_testutils` and `azure.mgmt.storage` are
found in it under the names that the tests expect.
"""
