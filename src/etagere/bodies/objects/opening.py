"""Opening object stores by their URLs."""

from __future__ import annotations

from etagere.bodies.objects.interface import ObjectStore


def open_object_store(url: str) -> ObjectStore:
    """Opens the object store at a URL, in the process that uses it. Raises ValueError, without
    showing the URL, if that is invalid. Nothing is sent to the store yet."""
    scheme = url.partition("://")[0]
    # Drivers are optional dependencies, and each is imported only by those who use it.
    if scheme == "s3":
        from etagere.bodies.objects.s3 import S3ObjectStore, parse_s3_url  # noqa: PLC0415

        return S3ObjectStore(parse_s3_url(url))
    if scheme == "rados":
        from etagere.bodies.objects.rados import RadosObjectStore  # noqa: PLC0415
        from etagere.bodies.objects.rados_connection import parse_rados_url  # noqa: PLC0415

        return RadosObjectStore(parse_rados_url(url))
    raise ValueError("must be s3://BUCKET[/PREFIX] or rados://POOL[/PREFIX]")
