// Queues: creation, metadata, access policies, listing and deletion.

import assert from "node:assert/strict";
import test from "node:test";

import { HOUR_MS, collect, fromNow, newQueue, refused, service, texts, unique } from "./clients.mjs";

test("creating a queue twice", async (t) => {
    const queue = service.getQueueClient(unique("created"));
    t.after(() => queue.deleteIfExists());
    const metadata = { colour: "red" };
    assert.equal((await queue.create({ metadata }))._response.status, 201);
    assert.equal((await queue.create({ metadata }))._response.status, 204);
    await refused(queue.create(), 409, "QueueAlreadyExists");
    await refused(queue.create({ metadata: { colour: "blue" } }), 409, "QueueAlreadyExists");
    assert.equal((await queue.createIfNotExists({ metadata })).succeeded, false);
    assert.equal((await queue.delete())._response.status, 204);
    assert.equal((await queue.deleteIfExists()).succeeded, false);
    assert.equal(await queue.exists(), false);
});

test("deleting and recreating a queue", async (t) => {
    const queue = await newQueue(t);
    await queue.sendMessage("text");
    await queue.delete();
    await refused(queue.getProperties(), 404, "QueueNotFound");
    await refused(queue.sendMessage("text"), 404, "QueueNotFound");
    await queue.create();
    assert.deepEqual(await texts(queue), []);
    assert.equal((await queue.getProperties()).approximateMessagesCount, 0);
});

for (const [name, code] of [
    ["ab", "OutOfRangeInput"],
    ["a".repeat(64), "OutOfRangeInput"],
    ["Upper", "InvalidResourceName"],
    ["a--b", "InvalidResourceName"],
]) {
    test(`the invalid name ${name}`, () =>
        refused(service.createQueue(name), 400, code));
}

test("metadata", async (t) => {
    const queue = await newQueue(t, { metadata: { key: "value" } });
    assert.deepEqual((await queue.getProperties()).metadata, { key: "value" });
    await queue.setMetadata({ other: "1", more: "2" });
    assert.deepEqual((await queue.getProperties()).metadata, { other: "1", more: "2" });
    await queue.setMetadata({});
    assert.deepEqual((await queue.getProperties()).metadata, {});
});

test("access policies are stored", async (t) => {
    const queue = await newQueue(t);
    const accessPolicy = {
        startsOn: fromNow(-HOUR_MS),
        expiresOn: fromNow(HOUR_MS),
        permissions: "raup",
    };
    await queue.setAccessPolicy([
        { id: "guests", accessPolicy },
        { id: "others", accessPolicy },
    ]);
    const { signedIdentifiers } = await queue.getAccessPolicy();
    assert.deepEqual(signedIdentifiers, [
        { id: "guests", accessPolicy },
        { id: "others", accessPolicy },
    ]);
    await queue.setAccessPolicy();
    assert.deepEqual((await queue.getAccessPolicy()).signedIdentifiers, []);
});

test("lists", async (t) => {
    const prefix = unique("listed");
    const names = [..."abcde"].map((letter) => `${prefix}-${letter}`);
    for (const name of names) {
        const queue = service.getQueueClient(name);
        await queue.create({ metadata: { its: name } });
        t.after(() => queue.delete());
    }
    const listed = await collect(service.listQueues({ prefix, includeMetadata: true }));
    assert.deepEqual(listed, names.map((name) => ({ name, metadata: { its: name } })));
    const [first] = await collect(service.listQueues({ prefix }));
    assert.equal(first.metadata, undefined);

    const pages = await collect(service.listQueues({ prefix }).byPage({ maxPageSize: 2 }));
    const namesOf = (page) => page.queueItems.map(({ name }) => name);
    assert.deepEqual(pages.map(namesOf), [names.slice(0, 2), names.slice(2, 4), names.slice(4)]);
    assert.equal(pages[0].prefix, prefix);
    assert.equal(pages[0].maxPageSize, 2);
    const { continuationToken } = pages[0];
    const rest = await collect(service.listQueues({ prefix }).byPage({ continuationToken }));
    assert.deepEqual(rest.flatMap(namesOf), names.slice(2));
});
