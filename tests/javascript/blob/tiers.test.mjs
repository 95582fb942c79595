// Tiers: setting, and rehydration from the archive.

import assert from "node:assert/strict";
import { setTimeout as pause } from "node:timers/promises";
import test from "node:test";

import { collect, newBlob, newContainer, refused, service, text } from "./clients.mjs";

async function listed(blob) {
    const container = service.getContainerClient(blob.containerName);
    const [{ properties }] = await collect(container.listBlobsFlat());
    return properties;
}

test("a tier changes immediately", async (t) => {
    const blob = await newBlob(t);
    const before = await blob.getProperties();
    assert.deepEqual([before.accessTier, before.accessTierInferred], ["Hot", true]);
    for (const tier of ["Cool", "Cold", "Hot"]) {
        const set = await blob.setAccessTier(tier);
        assert.equal(set._response.status, 200);
        const shown = await blob.getProperties();
        assert.equal(shown.etag, before.etag);
        for (const properties of [shown, await listed(blob)]) {
            assert.equal(properties.accessTier, tier);
            assert.equal(properties.accessTierInferred, undefined);
        }
        assert.ok(shown.accessTierChangedOn instanceof Date);
        assert.equal(await text(await blob.download()), "content");
    }
});

test("blobs are created with a tier", async (t) => {
    const blob = await newBlob(t, "content", { tier: "Cool" });
    assert.equal((await blob.getProperties()).accessTier, "Cool");
    await blob.upload("other", 5);
    const shown = await blob.getProperties();
    assert.deepEqual([shown.accessTier, shown.accessTierInferred], ["Hot", true]);
});

test("archived blobs cannot be read", async (t) => {
    const blob = await newBlob(t, "content", { metadata: { its: "own" } });
    await blob.setAccessTier("Archive");
    await refused(blob.download(), 409, "BlobArchived");
    await refused(blob.upload("other", 5), 409, "BlobArchived");
    await refused(blob.setMetadata({}), 409, "BlobArchived");
    const shown = await blob.getProperties();
    assert.deepEqual([shown.accessTier, shown.contentLength], ["Archive", 7]);
    assert.deepEqual(shown.metadata, { its: "own" });
    await blob.delete();
});

test("completed rehydration", async (t) => {
    const blob = await newBlob(t);
    await blob.setAccessTier("Archive");
    const set = await blob.setAccessTier("Cool", { rehydratePriority: "High" });
    assert.equal(set._response.status, 202);
    while ((await blob.getProperties()).archiveStatus !== undefined) await pause(50);
    assert.equal((await blob.getProperties()).accessTier, "Cool");
    assert.equal(await text(await blob.download()), "content");
});

test("rehydration by a copy", async (t) => {
    const blob = await newBlob(t);
    await blob.setAccessTier("Archive");
    const copy = service.getContainerClient(blob.containerName).getBlockBlobClient("copy");
    const settings = { tier: "Cool", rehydratePriority: "High", intervalInMs: 20 };
    await (await copy.beginCopyFromURL(blob.url, settings)).pollUntilDone();
    while ((await copy.getProperties()).archiveStatus !== undefined) await pause(50);
    assert.equal(await text(await copy.download()), "content");
    assert.equal((await copy.getProperties()).accessTier, "Cool");
    assert.equal((await blob.getProperties()).accessTier, "Archive");
});

test("tiers of page blobs", async (t) => {
    const disk = (await newContainer(t)).getPageBlobClient("disk");
    await disk.create(512, { tier: "P10" });
    assert.equal((await disk.getProperties()).accessTier, "P10");
    await disk.setAccessTier("P20");
    assert.equal((await disk.getProperties()).accessTier, "P20");
    await refused(disk.setAccessTier("P10"), 409, "CannotChangeToLowerTier");
    await refused(disk.setAccessTier("Cool"), 400, "AccessTierNotSupportedForBlobType");
    assert.equal((await disk.getProperties()).accessTier, "P20");
});

test("blobs without a tier", async (t) => {
    const container = await newContainer(t);
    const log = container.getAppendBlobClient("log");
    await log.create();
    await refused(log.setAccessTier("Cool"), 400, "AccessTierNotSupportedForBlobType");
    await refused(container.getBlobClient("none").setAccessTier("Cool"), 404, "BlobNotFound");
});
