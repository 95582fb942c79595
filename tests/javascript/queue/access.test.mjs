// Authorization: account keys, SAS tokens from the SDK, stored access policies and anonymous callers.

import assert from "node:assert/strict";
import test from "node:test";

import {
    AccountSASPermissions,
    QueueClient,
    QueueSASPermissions,
    QueueServiceClient,
    SASProtocol,
    StorageSharedKeyCredential,
    generateQueueSASQueryParameters,
} from "@azure/storage-queue";

import {
    HOUR_MS,
    collect,
    fromNow,
    newQueue,
    options,
    refused,
    service,
    texts,
    unique,
} from "./clients.mjs";

const expiresOn = fromNow(HOUR_MS);

const failed = (request) => refused(request, 403, "AuthenticationFailed");
const mismatched = (request) => refused(request, 403, "AuthorizationPermissionMismatch");
const outOfReach = (request) => refused(request, 403, "AuthorizationFailure");
const unauthenticated = (request) => refused(request, 401, "NoAuthenticationInformation");

/** Returns a client for a URL that contains a SAS. */
const holder = (Client, url) => new Client(url, undefined, options);

// Operations on a queue with one message, and the permission that each needs; "" if no SAS allows it.
const ACTIONS = {
    put: ["a", (queue) => queue.sendMessage("new")],
    get: ["p", (queue) => queue.receiveMessages()],
    peek: ["r", (queue) => queue.peekMessages()],
    update: ["u", (queue, held) => queue.updateMessage(held.messageId, held.popReceipt, "new")],
    delete: ["p", (queue, held) => queue.deleteMessage(held.messageId, held.popReceipt)],
    properties: ["r", (queue) => queue.getProperties()],
    clear: ["", (queue) => queue.clearMessages()],
    describe: ["", (queue) => queue.setMetadata({})],
    policies: ["", (queue) => queue.getAccessPolicy()],
    permit: ["", (queue) => queue.setAccessPolicy()],
    remove: ["", (queue) => queue.delete()],
};

test("a wrong key", async () => {
    const key = Buffer.from("wrong").toString("base64");
    const credential = new StorageSharedKeyCredential(service.accountName, key);
    const unauthorized = new QueueServiceClient(service.url, credential, options);
    await failed(unauthorized.getProperties());
    await failed(unauthorized.createQueue("never"));
    await failed(unauthorized.getQueueClient("never").sendMessage("never"));
});

test("an account SAS with all permissions", async () => {
    const permissions = AccountSASPermissions.parse("rwdlacup");
    const url = service.generateAccountSasUrl(expiresOn, permissions, "sco");
    const account = holder(QueueServiceClient, url);
    const queue = account.getQueueClient(unique());
    await queue.create();
    await queue.sendMessage("text");
    assert.deepEqual(await texts(queue), ["text"]);
    assert.equal((await collect(account.listQueues({ prefix: queue.name }))).length, 1);
    await account.getProperties();
    await queue.clearMessages();
    await mismatched(queue.getAccessPolicy());
    await queue.delete();
});

test("an account SAS grants only its resource types and permissions", async (t) => {
    const queue = await newQueue(t);
    function address(letters, types, more) {
        const permissions = AccountSASPermissions.parse(letters);
        const url = service.generateAccountSasUrl(expiresOn, permissions, types, more);
        return holder(QueueServiceClient, url).getQueueClient(queue.name);
    }
    await address("r", "o").peekMessages();
    await mismatched(address("r", "o").sendMessage("never"));
    const wrongType = "AuthorizationResourceTypeMismatch";
    await refused(address("r", "sc").peekMessages(), 403, wrongType);
    await failed(address("r", "o", { startsOn: fromNow(HOUR_MS / 2) }).peekMessages());
    const encrypted = address("r", "o", { protocol: SASProtocol.Https });
    await refused(encrypted.peekMessages(), 403, "AuthorizationProtocolMismatch");
    const otherAddress = address("r", "o", { ipRange: { start: "192.0.2.1", end: "192.0.2.9" } });
    await refused(otherAddress.peekMessages(), 403, "AuthorizationSourceIPMismatch");
});

for (const letter of "raup") {
    test(`a queue SAS with the permission ${letter}`, async (t) => {
        const queue = await newQueue(t);
        const permissions = QueueSASPermissions.parse(letter);
        const guest = holder(QueueClient, queue.generateSasUrl({ expiresOn, permissions }));
        for (const [needed, action] of Object.values(ACTIONS)) {
            const held = await queue.sendMessage("text");
            if (needed === letter) await action(guest, held);
            else await (needed === "" ? outOfReach : mismatched)(action(guest, held));
        }
    });
}

test("a queue SAS is valid for one queue and cannot be changed", async (t) => {
    const [queue, other] = [await newQueue(t), await newQueue(t)];
    const permissions = QueueSASPermissions.parse("r");
    const url = queue.generateSasUrl({ expiresOn, permissions });
    await failed(holder(QueueClient, url.replace(queue.name, other.name)).peekMessages());
    await failed(holder(QueueClient, url.replace("sp=r", "sp=ra")).peekMessages());
    const past = queue.generateSasUrl({ expiresOn: fromNow(-1000), permissions });
    await failed(holder(QueueClient, past).peekMessages());
});

test("a stored access policy applies to the next request", async (t) => {
    const queue = await newQueue(t);
    const keep = (permissions, end = expiresOn) =>
        queue.setAccessPolicy([{ id: "guests", accessPolicy: { expiresOn: end, permissions } }]);
    const names = { queueName: queue.name, identifier: "guests" };
    const token = generateQueueSASQueryParameters(names, service.credential);
    const guest = holder(QueueClient, `${queue.url}?${token}`);

    await failed(guest.peekMessages());
    await keep("r");
    await guest.peekMessages();
    await mismatched(guest.sendMessage("never"));
    await keep("a");
    await guest.sendMessage("text");
    await keep("ra", fromNow(-HOUR_MS));
    await failed(guest.peekMessages());
    await keep("ra");
    assert.deepEqual(await texts(guest), ["text"]);
    await queue.setAccessPolicy();
    await failed(guest.peekMessages());
});

test("anonymous callers", async (t) => {
    const queue = await newQueue(t);
    const unauthorized = holder(QueueClient, queue.url);
    for (const [, action] of Object.values(ACTIONS)) {
        await unauthenticated(action(unauthorized, await queue.sendMessage("text")));
    }
    await unauthenticated(collect(holder(QueueServiceClient, service.url).listQueues()));
    assert.equal((await queue.getProperties()).approximateMessagesCount, 11);
});
