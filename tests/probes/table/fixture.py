"""Tables to attack, and a dump of everything in the table service."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import ClassVar

from tests.probes.client import Answer, Request
from tests.probes.service import TABLE_SCHEMES, ServiceFixture
from tests.probes.table.operations import JSON, TableTarget
from tests.protocol.table.batches import answers_in
from tests.server import ACCOUNT, unique


class TableFixture(ServiceFixture[TableTarget]):
    """The owner's side of a probe of the table service."""

    service: ClassVar[str] = "table"
    schemes = TABLE_SCHEMES

    def create(self, account: str = ACCOUNT) -> TableTarget:
        name = unique("Probe").replace("-", "x")
        table = json.dumps({"TableName": name}).encode()
        self.send_as_owner(Request("POST", f"/{account}/Tables", (), (JSON,), table), account)
        entity = b'{"PartitionKey":"p","RowKey":"r","Age":36}'
        self.send_as_owner(Request("POST", f"/{account}/{name}", (), (JSON,), entity), account)
        return TableTarget(name, account)

    def remove(self, target: TableTarget) -> None:
        for name in (target.table, target.free):
            delete = Request("DELETE", f"/{target.account}/Tables('{name}')")
            self.client.ask(self.sign_as_owner(delete, target.account))

    def set_policies(self, target: TableTarget, document: bytes) -> None:
        path = f"/{target.account}/{target.table}"
        request = Request("PUT", path, (("comp", "acl"),), (), document)
        self.send_as_owner(request, target.account)

    def outcome(self, answer: Answer) -> Answer:
        """Returns the answer to the only operation of a group."""
        if answer.status != 202 or not answer.body:
            return answer
        (part,) = answers_in(answer.headers["content-type"], answer.body)
        code = {"x-ms-error-code": part.code} if part.status >= 400 else {}
        return Answer(part.status, {**part.headers, **code}, part.body)

    def dump_resources(self, account: str) -> Iterator[tuple[str, object]]:
        path = f"/{account}/"
        page = self.send_as_owner(Request("GET", f"{path}Tables"), account).body
        yield "/tables", page
        for table in json.loads(page)["value"]:
            name = table["TableName"]
            for request in (
                Request("GET", f"{path}{name}", (("comp", "acl"),)),
                Request("GET", f"{path}{name}()"),
            ):
                yield f"/{name}{request.target}", self.send_as_owner(request, account).body
