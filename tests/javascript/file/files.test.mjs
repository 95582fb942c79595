// Files: creation, ranges, properties, leases and deletion.
// The SDK renames only where the account is in the name of the host.

import assert from "node:assert/strict";
import test from "node:test";

import { newFile, newShare, refused } from "./clients.mjs";

test("creating a file", async (t) => {
    const share = await newShare(t);
    const file = share.rootDirectoryClient.getFileClient("Report");
    const created = await file.create(1000, {
        metadata: { colour: "red" },
        fileHttpHeaders: { fileContentType: "text/plain", fileContentLanguage: "fr" },
    });
    assert.equal(created._response.status, 201);
    assert.equal(created.fileAttributes, "Archive");
    const shown = await file.getProperties();
    assert.equal(shown.contentLength, 1000);
    assert.equal(shown.contentType, "text/plain");
    assert.equal(shown.contentLanguage, "fr");
    assert.equal(shown.leaseState, "available");
    assert.deepEqual(shown.metadata, { colour: "red" });
    assert.deepEqual(await file.downloadToBuffer(), Buffer.alloc(1000));
});

test("ranges", async (t) => {
    const share = await newShare(t);
    const file = share.rootDirectoryClient.getFileClient("Report");
    await file.create(2048);
    await file.uploadRange("12345", 512, 5);
    await file.uploadRange("x".repeat(512), 1024, 512);
    await file.clearRange(1024, 512);
    assert.equal((await file.downloadToBuffer(510, 9)).toString(), "\0\x0012345\0\0");
    const { rangeList } = await file.getRangeList();
    assert.deepEqual(rangeList.slice(0, 1), [{ start: 512, end: 516 }]);
});

test("uploads and downloads", async (t) => {
    const share = await newShare(t);
    const content = Buffer.alloc(9 * 1024 * 1024, "content");
    const file = await newFile(share.rootDirectoryClient, "Report", content, { concurrency: 4 });
    assert.ok((await file.downloadToBuffer()).equals(content));
});

test("setting headers, metadata and the length", async (t) => {
    const share = await newShare(t);
    const fileHttpHeaders = { fileContentType: "text/plain" };
    const file = await newFile(share.rootDirectoryClient, "Report", "12345", { fileHttpHeaders });
    await file.setHttpHeaders({ fileContentLanguage: "de" });
    const shown = await file.getProperties();
    assert.equal(shown.contentLanguage, "de");
    assert.equal(shown.contentType, undefined);
    await file.setMetadata({ shape: "round" });
    await file.resize(3);
    assert.equal((await file.downloadToBuffer()).toString(), "123");
    assert.deepEqual((await file.getProperties()).metadata, { shape: "round" });
});

test("leases", async (t) => {
    const share = await newShare(t);
    const file = await newFile(share.rootDirectoryClient, "Report", "12345");
    const lease = file.getShareLeaseClient();
    await lease.acquireLease();
    await refused(file.setMetadata({}), 412, "LeaseIdMissing");
    await file.setMetadata({}, { leaseAccessConditions: { leaseId: lease.leaseId } });
    await refused(
        file.getShareLeaseClient().acquireLease(),
        409,
        "LeaseAlreadyPresent",
    );
    await lease.releaseLease();
    await file.setMetadata({});
});

test("deleting a file", async (t) => {
    const share = await newShare(t);
    const file = await newFile(share.rootDirectoryClient, "Report", "12345");
    assert.equal((await file.delete())._response.status, 202);
    await refused(file.delete(), 404, "ResourceNotFound");
    await refused(file.getProperties(), 404, "ResourceNotFound");
    assert.equal((await file.deleteIfExists()).succeeded, false);
});
