"""Operations of the file service."""
