"""A client of the admin port."""

from __future__ import annotations

import http.client
from email.message import Message
from typing import NamedTuple
from urllib.parse import urlsplit

from prometheus_client.parser import text_string_to_metric_families

from tests.server import Server

SECONDS_MAX = 20.0


class Answer(NamedTuple):
    status: int
    headers: Message
    text: str


def get(server: Server, path: str, method: str = "GET", **headers: str) -> Answer:
    connection = http.client.HTTPConnection(address(server), timeout=SECONDS_MAX)
    try:
        connection.request(method, path, headers=headers)
        response = connection.getresponse()
        return Answer(response.status, response.headers, response.read().decode())
    finally:
        connection.close()


def address(server: Server) -> str:
    return urlsplit(server.endpoints["admin"]).netloc


class Scrape:
    """The samples of one scrape."""

    def __init__(self, text: str) -> None:
        self.families = list(text_string_to_metric_families(text))
        self._samples = [sample for family in self.families for sample in family.samples]

    def total(self, name: str, **labels: str) -> float:
        """Returns the sum of the samples with this name and these labels."""
        return sum(
            sample.value
            for sample in self._samples
            if sample.name == name and labels.items() <= sample.labels.items()
        )

    @property
    def labels(self) -> dict[str, set[str]]:
        """The names of the labels of samples by their names."""
        found: dict[str, set[str]] = {}
        for sample in self._samples:
            found.setdefault(sample.name, set()).update(sample.labels)
        return found


def scrape(server: Server) -> Scrape:
    answer = get(server, "/metrics")
    assert answer.status == 200, answer
    return Scrape(answer.text)
