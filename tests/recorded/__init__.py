"""Our answers, compared with those of the real service in public test recordings."""
