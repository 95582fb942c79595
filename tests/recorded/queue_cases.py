"""Recorded requests to the queue service."""

from __future__ import annotations

import re
from typing import Final

from tests.probes.client import Request
from tests.recorded.cases import CaseContext, Catalogue

QUEUE: Final = Catalogue("queue")
NOT_COMPARED: Final[dict[tuple[str, int, str], str]] = {}
"""Recorded responses without a case, and why."""

_XML: Final = {"Content-Type": "application/xml"}
_MESSAGE: Final = "<QueueMessage><MessageText>hello</MessageText></QueueMessage>"
_SERVICE: Final = {"restype": "service", "comp": "properties"}
_METRICS: Final = (
    "<{0}><Version>1.0</Version><Enabled>true</Enabled><IncludeAPIs>true</IncludeAPIs>"
    "<RetentionPolicy><Enabled>true</Enabled><Days>{1}</Days></RetentionPolicy></{0}>"
)
CORS_RULE: Final = (
    "<CorsRule><AllowedOrigins>www.example.com</AllowedOrigins><AllowedMethods>GET,PUT"
    "</AllowedMethods><AllowedHeaders>x-ms-meta-data*,x-ms-meta-target*,x-ms-meta-xyz"
    "</AllowedHeaders><ExposedHeaders>x-ms-meta-abc,x-ms-meta-data*</ExposedHeaders>"
    "<MaxAgeInSeconds>500</MaxAgeInSeconds></CorsRule>"
)
POLICY: Final = (
    "<SignedIdentifiers><SignedIdentifier><Id>testid</Id><AccessPolicy>"
    "<Start>2021-06-08T02:10:09Z</Start><Expiry>2021-06-08T03:10:09Z</Expiry>"
    "<Permission>r</Permission></AccessPolicy></SignedIdentifier></SignedIdentifiers>"
)
BARE_POLICY: Final = (
    "<SignedIdentifiers><SignedIdentifier><Id>empty</Id></SignedIdentifier></SignedIdentifiers>"
)

LOGGING: Final = (
    "<Logging><Version>1.0</Version><Delete>true</Delete><Read>true</Read><Write>true</Write>"
    "<RetentionPolicy><Enabled>true</Enabled><Days>5</Days></RetentionPolicy></Logging>"
)


def properties(*parts: str) -> str:
    inside = "".join(parts)
    return f"<StorageServiceProperties>{inside}</StorageServiceProperties>"


def metrics(name: str, days: int = 5) -> str:
    return _METRICS.format(name, days)


def add_service_properties(catalogue: Catalogue, extra: dict[str, str] | None = None) -> None:
    """Adds the cases of service properties that the services have in common."""
    common = extra or {}
    usual = properties("<Cors />")

    def setting(*parts: str) -> None:
        def make(context: CaseContext) -> Request:
            context.afterwards.append(
                context.request("PUT", "", _SERVICE, {**_XML, **common}, usual)
            )
            return context.request("PUT", "", _SERVICE, {**_XML, **common}, properties(*parts))

        name = re.sub(r"<|>.*", "", "".join(parts)) or "empty"
        catalogue.add("Service_SetProperties", 202, make=make, name=name)

    def refused(name: str, *parts: str) -> None:
        def make(context: CaseContext) -> Request:
            return context.request("PUT", "", _SERVICE, {**_XML, **common}, properties(*parts))

        catalogue.add("Service_SetProperties", 400, "InvalidXmlDocument", make=make, name=name)

    setting(LOGGING)
    setting(metrics("HourMetrics"))
    setting(metrics("MinuteMetrics"))
    setting("<Cors>", CORS_RULE, "</Cors>")
    refused("too many rules", "<Cors>", CORS_RULE * 6, "</Cors>")
    refused("366 days", metrics("MinuteMetrics", 366))

    @catalogue.case("Service_GetProperties", 200)
    def get_properties(context: CaseContext) -> Request:
        return context.request("GET", "", _SERVICE, common)

    @catalogue.case("Service_GetProperties", 200, name="all set", share=1, cors=False)
    def get_full_properties(context: CaseContext) -> Request:
        parts = (LOGGING, metrics("HourMetrics"), metrics("MinuteMetrics"))
        body = properties(*parts)
        context.do("PUT", "", _SERVICE, {**_XML, **common}, body)
        return context.request("GET", "", _SERVICE, common)

    @catalogue.case("Service_GetStatistics", 200)
    def statistics(context: CaseContext) -> Request:
        request = context.request("GET", "", {"restype": "service", "comp": "stats"}, common)
        return secondary(request)


def secondary(request: Request) -> Request:
    """Sends the request to the secondary endpoint, which has the statistics."""
    account, _, rest = request.path[1:].partition("/")
    return Request(
        request.method, f"/{account}-secondary/{rest}", request.query, request.headers, request.body
    )


add_service_properties(QUEUE)


# Queues


def create(context: CaseContext, **metadata: str) -> str:
    headers = {f"x-ms-meta-{name}": value for name, value in metadata.items()}
    context.do("PUT", context.name, headers=headers)
    return context.name


@QUEUE.case("Service_ListQueuesSegment", 200)
def list_queues(context: CaseContext) -> Request:
    create(context)
    return context.request("GET", "", {"comp": "list"})


@QUEUE.case("Service_ListQueuesSegment", 200, name="prefix, metadata, pages")
def list_some(context: CaseContext) -> Request:
    create(context, title="shelf")
    query = {"comp": "list", "prefix": context.name, "include": "metadata", "maxresults": "1"}
    return context.request("GET", "", query)


@QUEUE.case("Service_ListQueuesSegment", 200, name="marker")
def list_from_marker(context: CaseContext) -> Request:
    for number in "ab":
        context.do("PUT", context.name + number)
    query = {"comp": "list", "prefix": context.name, "maxresults": "1"}
    body = context.do("GET", "", query).body.decode()
    marker = body.partition("<NextMarker>")[2].partition("<")[0]
    return context.request("GET", "", {**query, "marker": marker})


@QUEUE.case("Queue_Create", 201)
def create_queue(context: CaseContext) -> Request:
    return context.request("PUT", context.name)


@QUEUE.case("Queue_Create", 201, name="metadata", share=12)
def create_queue_with_metadata(context: CaseContext) -> Request:
    return context.request("PUT", context.name, headers={"x-ms-meta-title": "shelf"})


@QUEUE.case("Queue_Create", 204)
def create_queue_again(context: CaseContext) -> Request:
    return context.request("PUT", create(context, val="test"), headers={"x-ms-meta-val": "test"})


@QUEUE.case("Queue_Create", 409, "QueueAlreadyExists")
def create_other_queue(context: CaseContext) -> Request:
    return context.request("PUT", create(context, val="test"), headers={"x-ms-meta-val": "other"})


@QUEUE.case("Queue_Create", 400, "InvalidResourceName")
def create_queue_of_bad_name(context: CaseContext) -> Request:
    return context.request("PUT", "啊齄丂狛狜")


@QUEUE.case("Queue_GetProperties", 200)
def get_metadata(context: CaseContext) -> Request:
    return context.request("GET", create(context), {"comp": "metadata"})


@QUEUE.case("Queue_GetProperties", 200, name="metadata", share=12, having={"x-ms-meta-*"})
def get_some_metadata(context: CaseContext) -> Request:
    return context.request("GET", create(context, title="shelf"), {"comp": "metadata"})


@QUEUE.case("Queue_SetMetadata", 204)
def set_metadata(context: CaseContext) -> Request:
    headers = {"x-ms-meta-title": "shelf"}
    return context.request("PUT", create(context), {"comp": "metadata"}, headers)


@QUEUE.case("Queue_Delete", 204)
def delete_queue(context: CaseContext) -> Request:
    return context.request("DELETE", create(context))


@QUEUE.case("Queue_GetAccessPolicy", 200)
def get_acl(context: CaseContext) -> Request:
    return context.request("GET", create(context), {"comp": "acl"})


@QUEUE.case("Queue_GetAccessPolicy", 200, name="policy", share=4)
def get_policy(context: CaseContext) -> Request:
    context.do("PUT", create(context), {"comp": "acl"}, _XML, POLICY)
    return context.request("GET", context.name, {"comp": "acl"})


@QUEUE.case(
    "Queue_GetAccessPolicy",
    200,
    name="bare policy",
    share=4,
    elements=("!SignedIdentifiers/SignedIdentifier/AccessPolicy",),
)
def get_bare_policy(context: CaseContext) -> Request:
    context.do("PUT", create(context), {"comp": "acl"}, _XML, BARE_POLICY)
    return context.request("GET", context.name, {"comp": "acl"})


@QUEUE.case("Queue_SetAccessPolicy", 204)
def set_acl(context: CaseContext) -> Request:
    return context.request("PUT", create(context), {"comp": "acl"}, _XML, POLICY)


@QUEUE.case("Queue_SetAccessPolicy", 204, name="without a body", share=12)
def clear_acl(context: CaseContext) -> Request:
    return context.request("PUT", create(context), {"comp": "acl"})


for _operation, _method, _query, _body in (
    ("Queue_GetProperties", "GET", {"comp": "metadata"}, ""),
    ("Queue_Delete", "DELETE", {}, ""),
    ("Queue_GetAccessPolicy", "GET", {"comp": "acl"}, ""),
    ("Queue_SetAccessPolicy", "PUT", {"comp": "acl"}, POLICY),
):

    @QUEUE.case(_operation, 404, "QueueNotFound")
    def absent(
        context: CaseContext,
        method: str = _method,
        query: dict[str, str] = _query,
        body: str = _body,
    ) -> Request:
        return context.request(method, context.name, query, _XML if body else {}, body)


# Messages


def put(context: CaseContext, count: int = 1) -> str:
    path = f"{create(context)}/messages"
    for _ in range(count):
        context.do("POST", path, headers=_XML, body=_MESSAGE)
    return path


@QUEUE.case("Messages_Enqueue", 201)
def put_message(context: CaseContext) -> Request:
    return context.request("POST", f"{create(context)}/messages", headers=_XML, body=_MESSAGE)


@QUEUE.case("Messages_Enqueue", 201, name="ttl", share=8)
def put_lasting_message(context: CaseContext) -> Request:
    path = f"{create(context)}/messages"
    return context.request("POST", path, {"messagettl": "-1"}, _XML, _MESSAGE)


@QUEUE.case("Messages_Enqueue", 413, "RequestBodyTooLarge")
def put_large_message(context: CaseContext) -> Request:
    body = _MESSAGE.replace("hello", "a" * 65_537)
    return context.request("POST", f"{create(context)}/messages", headers=_XML, body=body)


@QUEUE.case("Messages_Enqueue", 400, "InvalidXmlDocument")
def put_bad_characters(context: CaseContext) -> Request:
    body = _MESSAGE.replace("hello", "action?\x02")
    return context.request("POST", f"{create(context)}/messages", headers=_XML, body=body)


@QUEUE.case("Messages_Dequeue", 200)
def get_messages(context: CaseContext) -> Request:
    return context.request("GET", put(context, 2), {"numofmessages": "32"})


@QUEUE.case("Messages_Dequeue", 200, name="empty", share=66)
def get_no_messages(context: CaseContext) -> Request:
    return context.request("GET", put(context, 0))


@QUEUE.case("Messages_Peek", 200)
def peek(context: CaseContext) -> Request:
    return context.request("GET", put(context), {"peekonly": "true"})


@QUEUE.case("Messages_Peek", 200, name="empty", share=4)
def peek_nothing(context: CaseContext) -> Request:
    return context.request("GET", put(context, 0), {"peekonly": "true"})


@QUEUE.case("Messages_Clear", 204)
def clear(context: CaseContext) -> Request:
    return context.request("DELETE", put(context))


def _got(context: CaseContext) -> tuple[str, str]:
    path = put(context)
    body = context.do("GET", path).body.decode()
    match = re.search("<MessageId>(.*?)<.*<PopReceipt>(.*?)<", body)
    assert match is not None
    return f"{path}/{match[1]}", match[2]


@QUEUE.case("MessageId_Update", 204)
def update(context: CaseContext) -> Request:
    path, receipt = _got(context)
    query = {"popreceipt": receipt, "visibilitytimeout": "0"}
    return context.request("PUT", path, query, _XML, _MESSAGE)


@QUEUE.case("MessageId_Update", 204, name="without a text", share=4)
def update_visibility(context: CaseContext) -> Request:
    path, receipt = _got(context)
    return context.request("PUT", path, {"popreceipt": receipt, "visibilitytimeout": "0"})


@QUEUE.case("MessageId_Delete", 204)
def delete_message(context: CaseContext) -> Request:
    path, receipt = _got(context)
    return context.request("DELETE", path, {"popreceipt": receipt})
