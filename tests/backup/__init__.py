"""Tests of backups and their restoration."""
