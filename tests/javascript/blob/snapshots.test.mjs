// Snapshots: creating, reading, listing and deleting.

import assert from "node:assert/strict";
import test from "node:test";

import { BlobClient, BlobSASPermissions, BlockBlobClient } from "@azure/storage-blob";

import {
    HOUR_MS,
    OTHER_ETAG,
    collect,
    fromNow,
    newBlob,
    newContainer,
    options,
    refused,
    service,
    text,
} from "./clients.mjs";

/** Creates a snapshot and returns its client. */
async function take(blob, settings = {}) {
    return blob.withSnapshot((await blob.createSnapshot(settings)).snapshot);
}

/** Returns the snapshots in a container, and undefined for each base blob. */
async function listed(blob) {
    const container = service.getContainerClient(blob.containerName);
    const items = await collect(container.listBlobsFlat({ includeSnapshots: true }));
    return items.map(({ snapshot }) => snapshot);
}

test("a snapshot has the content at its time", async (t) => {
    const blob = await newBlob(t, "old", { metadata: { its: "own" } });
    const { etag } = await blob.getProperties();
    const created = await blob.createSnapshot();
    assert.equal(created._response.status, 201);
    assert.equal(created.etag, etag);
    assert.equal((await blob.getProperties()).etag, etag);
    await blob.upload("new", 3);
    const past = blob.withSnapshot(created.snapshot);
    assert.equal(await text(await past.download()), "old");
    assert.equal(await text(await past.download(1, 1)), "l");
    const shown = await past.getProperties();
    assert.equal(shown.etag, etag);
    assert.deepEqual(shown.metadata, { its: "own" });
    assert.equal(await text(await blob.download()), "new");
});

test("a snapshot with its own metadata", async (t) => {
    const blob = await newBlob(t, "old", { metadata: { its: "own" } });
    const past = await take(blob, { metadata: { other: "things" } });
    assert.deepEqual((await past.getProperties()).metadata, { other: "things" });
    assert.deepEqual((await blob.getProperties()).metadata, { its: "own" });
});

test("conditions on creating a snapshot", async (t) => {
    const blob = await newBlob(t);
    const { etag } = await blob.getProperties();
    const create = (conditions) => blob.createSnapshot({ conditions });
    await refused(create({ ifMatch: OTHER_ETAG }), 412, "ConditionNotMet");
    await refused(create({ ifNoneMatch: etag }), 412, "ConditionNotMet");
    assert.deepEqual(await listed(blob), [undefined]);
    await create({ ifMatch: etag });
});

test("paged lists with snapshots", async (t) => {
    const container = await newContainer(t);
    const expected = [];
    for (const name of ["a", "b"]) {
        const blob = container.getBlockBlobClient(name);
        await blob.upload(name, 1);
        for (let count = 0; count < 2; count += 1) {
            expected.push([name, (await blob.createSnapshot()).snapshot]);
        }
        expected.push([name, undefined]);
    }
    for (let maxPageSize = 1; maxPageSize <= expected.length; maxPageSize += 1) {
        const pages = container.listBlobsFlat({ includeSnapshots: true }).byPage({ maxPageSize });
        const items = [];
        for await (const { segment } of pages) {
            items.push(...segment.blobItems.map(({ name, snapshot }) => [name, snapshot]));
            // Pages that repeat earlier entries would never end.
            if (items.length > expected.length) break;
        }
        assert.deepEqual(items, expected, `in pages of ${maxPageSize}`);
    }
});

test("deleting a blob with its snapshots, or only the snapshots", async (t) => {
    const blob = await newBlob(t);
    await take(blob);
    await refused(blob.delete(), 409, "SnapshotsPresent");
    await blob.delete({ deleteSnapshots: "only" });
    assert.deepEqual(await listed(blob), [undefined]);
    await take(blob);
    await blob.delete({ deleteSnapshots: "include" });
    assert.deepEqual(await listed(blob), []);
});

test("deleting one snapshot", async (t) => {
    const blob = await newBlob(t);
    const first = await take(blob);
    const { snapshot } = await blob.createSnapshot();
    const both = first.delete({ deleteSnapshots: "include" });
    await refused(both, 400, "InvalidHeaderValue");
    await first.delete();
    await refused(first.download(), 404, "BlobNotFound");
    assert.deepEqual(await listed(blob), [snapshot, undefined]);
});

const CHANGES = {
    "put blob": (blob) => blob.upload("new", 3),
    "put block": (blob) => blob.stageBlock("YQ==", "new", 3),
    "put block list": (blob) => blob.commitBlockList([]),
    "set metadata": (blob) => blob.setMetadata({ a: "b" }),
    "set properties": (blob) => blob.setHTTPHeaders({}),
    lease: (blob) => blob.getBlobLeaseClient().acquireLease(15),
    snapshot: (blob) => blob.createSnapshot(),
};

for (const [name, change] of Object.entries(CHANGES)) {
    test(`operations that snapshots refuse: ${name}`, async (t) => {
        const blob = await newBlob(t, "old");
        const { etag } = await blob.getProperties();
        const past = await take(blob);
        const url = await past.generateSasUrl({
            permissions: BlobSASPermissions.parse("racwd"),
            expiresOn: fromNow(HOUR_MS),
        });
        // With the account key, with a token for the snapshot, and with that token for the base blob.
        const holder = new BlockBlobClient(url, undefined, options);
        const baseUrl = url.replace(/snapshot=[^&]*&/, "");
        assert.notEqual(baseUrl, url);
        const baseBlob = new BlockBlobClient(baseUrl, undefined, options);
        await refused(change(past), 400, "InvalidQueryParameterValue");
        await refused(change(holder), 403, "AuthorizationFailure");
        await refused(change(baseBlob), 403, "AuthenticationFailed");
        assert.equal((await blob.getProperties()).etag, etag);
        assert.equal(await text(await past.download()), "old");
    });
}

test("a token for one snapshot", async (t) => {
    const blob = await newBlob(t, "old");
    const first = await take(blob);
    const second = await blob.createSnapshot();
    const url = await first.generateSasUrl({
        permissions: BlobSASPermissions.parse("r"),
        expiresOn: fromNow(HOUR_MS),
    });
    const holder = new BlobClient(url, undefined, options);
    assert.equal(await text(await holder.download()), "old");
    const other = holder.withSnapshot(second.snapshot);
    await refused(other.download(), 403, "AuthenticationFailed");
    await refused(holder.delete(), 403, "AuthorizationPermissionMismatch");
});
