// Batches: deleting many blobs, or setting their tiers, in one request.

import assert from "node:assert/strict";
import test from "node:test";

import { BlobBatch, ContainerClient, ContainerSASPermissions } from "@azure/storage-blob";

import { HOUR_MS, collect, fromNow, newContainer, options, service } from "./clients.mjs";

const NAMES = ["a", "b c", "ü/%+&=?"];

/** Creates blobs in a new container. */
async function newBlobs(t, names = NAMES) {
    const container = await newContainer(t);
    const blobs = names.map((name) => container.getBlockBlobClient(name));
    await Promise.all(blobs.map((blob) => blob.upload("content", 7)));
    return [container, blobs];
}

async function left(container) {
    return (await collect(container.listBlobsFlat())).map(({ name }) => name);
}

const statuses = (done) => done.subResponses.map(({ status }) => status);

test("deleting several blobs", async (t) => {
    const [container, blobs] = await newBlobs(t);
    const done = await container.getBlobBatchClient().deleteBlobs(blobs);
    assert.equal(done._response.status, 202);
    assert.deepEqual(statuses(done), [202, 202, 202]);
    assert.equal(done.subResponsesSucceededCount, 3);
    assert.equal(done.subResponsesFailedCount, 0);
    for (const [number, { _request, headers }] of done.subResponses.entries()) {
        assert.equal(_request.url, blobs[number].url);
        assert.ok(headers.get("x-ms-request-id"));
    }
    assert.deepEqual(await left(container), []);
});

test("blobs of several containers", async (t) => {
    const [one, ofOne] = await newBlobs(t);
    const [other, ofOther] = await newBlobs(t);
    const done = await service.getBlobBatchClient().deleteBlobs([ofOne[0], ofOther[1]]);
    assert.deepEqual(statuses(done), [202, 202]);
    assert.deepEqual(await left(one), NAMES.slice(1));
    assert.deepEqual(await left(other), [NAMES[0], NAMES[2]]);
});

test("a part that fails does not stop the others", async (t) => {
    const [container, [first, second, third]] = await newBlobs(t);
    const missing = container.getBlockBlobClient("missing");
    const { snapshot } = await second.createSnapshot();
    const lease = third.getBlobLeaseClient();
    await lease.acquireLease(15);
    const batches = container.getBlobBatchClient();
    const done = await batches.deleteBlobs([missing, first, second, third]);
    assert.deepEqual(statuses(done), [404, 202, 409, 412]);
    assert.deepEqual(
        done.subResponses.map(({ errorCode }) => errorCode),
        ["BlobNotFound", undefined, "SnapshotsPresent", "LeaseIdMissing"],
    );
    assert.match(done.subResponses[0].bodyAsText, /<Code>BlobNotFound<\/Code>/);
    assert.equal(done.subResponsesFailedCount, 3);
    assert.deepEqual(await left(container), [second.name, third.name]);
    await lease.releaseLease();
    const settings = { deleteSnapshots: "include" };
    const rest = await batches.deleteBlobs([second, third], settings);
    assert.deepEqual(statuses(rest), [202, 202]);
    assert.equal(await second.withSnapshot(snapshot).exists(), false);
});

test("conditions of single parts", async (t) => {
    const [container, [first, second]] = await newBlobs(t);
    const { etag } = await first.getProperties();
    const batch = new BlobBatch();
    await batch.deleteBlob(first, { conditions: { ifMatch: etag } });
    await batch.deleteBlob(second, { conditions: { ifMatch: etag } });
    const done = await container.getBlobBatchClient().submitBatch(batch);
    assert.deepEqual(statuses(done), [202, 412]);
    assert.equal(done.subResponses[1].errorCode, "ConditionNotMet");
});

test("setting several tiers", async (t) => {
    const [container, blobs] = await newBlobs(t);
    const done = await container.getBlobBatchClient().setBlobsAccessTier(blobs, "Cool");
    assert.deepEqual(statuses(done), [200, 200, 200]);
    const tiers = await collect(container.listBlobsFlat());
    assert.deepEqual(
        tiers.map(({ properties }) => properties.accessTier),
        ["Cool", "Cool", "Cool"],
    );
});

test("parts by URL and credential", async (t) => {
    const [container, blobs] = await newBlobs(t);
    const urls = blobs.map(({ url }) => url);
    const batches = container.getBlobBatchClient();
    const moved = await batches.setBlobsAccessTier(urls, service.credential, "Cold");
    assert.deepEqual(statuses(moved), [200, 200, 200]);
    const done = await batches.deleteBlobs(urls, service.credential);
    assert.deepEqual(statuses(done), [202, 202, 202]);
    assert.deepEqual(await left(container), []);
});

test("a batch with a container SAS", async (t) => {
    const [container] = await newBlobs(t);
    const expiresOn = fromNow(HOUR_MS);
    async function holder(letters) {
        const permissions = ContainerSASPermissions.parse(letters);
        const url = await container.generateSasUrl({ permissions, expiresOn });
        return new ContainerClient(url, undefined, options);
    }
    async function deleted(letters) {
        const held = await holder(letters);
        const blobs = NAMES.map((name) => held.getBlockBlobClient(name));
        return statuses(await held.getBlobBatchClient().deleteBlobs(blobs));
    }
    assert.deepEqual(await deleted("r"), [403, 403, 403]);
    assert.deepEqual(await left(container), NAMES);
    assert.deepEqual(await deleted("d"), [202, 202, 202]);
    assert.deepEqual(await left(container), []);
});

test("the maximum number of parts", async (t) => {
    const names = Array.from({ length: 256 }, (_, number) => `blob ${number}`);
    const [container, blobs] = await newBlobs(t, names);
    const done = await container.getBlobBatchClient().deleteBlobs(blobs);
    assert.equal(done.subResponsesSucceededCount, 256);
    assert.deepEqual(await left(container), []);
});
