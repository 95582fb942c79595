// Who is let in: keys, signatures made by the SDK, stored policies, and callers without a name.

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
const unnamed = (request) => refused(request, 401, "NoAuthenticationInformation");

/** What anybody who has this address can do. */
const holder = (Client, url) => new Client(url, undefined, options);

// What is done to a queue with one message, and the letter that it needs; none has "".
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
    const stranger = new QueueServiceClient(service.url, credential, options);
    await failed(stranger.getProperties());
    await failed(stranger.createQueue("never"));
    await failed(stranger.getQueueClient("never").sendMessage("never"));
});

test("an account's signature for everything", async () => {
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

test("an account's signature opens only the types and letters it names", async (t) => {
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
    const elsewhere = address("r", "o", { ipRange: { start: "192.0.2.1", end: "192.0.2.9" } });
    await refused(elsewhere.peekMessages(), 403, "AuthorizationSourceIPMismatch");
});

for (const letter of "raup") {
    test(`a queue's signature with the letter ${letter}`, async (t) => {
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

test("a signature is for one queue, as it was signed", async (t) => {
    const [queue, other] = [await newQueue(t), await newQueue(t)];
    const permissions = QueueSASPermissions.parse("r");
    const url = queue.generateSasUrl({ expiresOn, permissions });
    await failed(holder(QueueClient, url.replace(queue.name, other.name)).peekMessages());
    await failed(holder(QueueClient, url.replace("sp=r", "sp=ra")).peekMessages());
    const past = queue.generateSasUrl({ expiresOn: fromNow(-1000), permissions });
    await failed(holder(QueueClient, past).peekMessages());
});

test("a stored policy is in force from the next request on", async (t) => {
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

test("callers without a name", async (t) => {
    const queue = await newQueue(t);
    const stranger = holder(QueueClient, queue.url);
    for (const [, action] of Object.values(ACTIONS)) {
        await unnamed(action(stranger, await queue.sendMessage("text")));
    }
    await unnamed(collect(holder(QueueServiceClient, service.url).listQueues()));
    assert.equal((await queue.getProperties()).approximateMessagesCount, 11);
});
