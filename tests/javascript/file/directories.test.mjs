// Directories: creation, properties, metadata, listing and deletion.
// The SDK renames only where the account is in the name of the host.

import assert from "node:assert/strict";
import test from "node:test";

import { names, newFile, newShare, refused, service, unique } from "./clients.mjs";

test("creating a directory", async (t) => {
    const share = await newShare(t);
    const directory = share.getDirectoryClient("Papers");
    const created = await directory.create({ metadata: { colour: "red" } });
    assert.equal(created._response.status, 201);
    assert.equal(created.fileAttributes, "Directory");
    assert.equal(created.fileParentId, "0");
    const shown = await directory.getProperties();
    assert.deepEqual(shown.metadata, { colour: "red" });
    assert.equal(shown.etag, created.etag);
    assert.equal(shown.isServerEncrypted, true);
    await refused(directory.create(), 409, "ResourceAlreadyExists");
    assert.equal((await share.getDirectoryClient("PAPERS").createIfNotExists()).succeeded, false);
});

test("what is missing", async (t) => {
    const share = await newShare(t);
    const below = share.getDirectoryClient("missing/below");
    await refused(below.create(), 404, "ParentNotFound");
    await refused(below.getProperties(), 404, "ParentNotFound");
    assert.equal(await share.getDirectoryClient("missing").exists(), false);
    const nowhere = service.getShareClient(unique("missing")).getDirectoryClient("Papers");
    await refused(nowhere.create(), 404, "ShareNotFound");
});

test("times and attributes", async (t) => {
    const share = await newShare(t);
    const directory = share.getDirectoryClient("Papers");
    const creationTime = new Date("2020-02-29T01:02:03.123Z");
    await directory.create({ creationTime });
    const before = await directory.getProperties();
    assert.deepEqual(before.fileCreatedOn, creationTime);
    await directory.setProperties({ lastWriteTime: creationTime });
    const after = await directory.getProperties();
    assert.deepEqual(after.fileCreatedOn, creationTime);
    assert.deepEqual(after.fileLastWriteOn, creationTime);
    assert.equal(after.filePermissionKey, before.filePermissionKey);
    await directory.setMetadata({ shape: "round" });
    assert.deepEqual((await directory.getProperties()).metadata, { shape: "round" });
});

test("listing a directory", async (t) => {
    const share = await newShare(t);
    const root = share.rootDirectoryClient;
    for (const name of ["d", "B"]) await root.createSubdirectory(name);
    for (const name of ["c", "A", "été"]) await newFile(root, name, name);
    assert.deepEqual((await names(root)).sort(), ["A", "B", "c", "d", "été"].sort());
    assert.deepEqual(await names(root, { prefix: "ÉT" }), ["été"]);
    const pages = [];
    for await (const page of root.listFilesAndDirectories().byPage({ maxPageSize: 2 })) {
        const { directoryItems, fileItems } = page.segment;
        pages.push([...directoryItems, ...fileItems].map(({ name }) => name).sort());
    }
    assert.deepEqual(pages, [["A", "B"], ["c", "d"], ["été"]]);
});

test("details of a listing", async (t) => {
    const share = await newShare(t);
    const root = share.rootDirectoryClient;
    const file = await newFile(root, "Report", "12345");
    const shown = await file.getProperties();
    const settings = {
        includeTimestamps: true,
        includeEtag: true,
        includeAttributes: true,
        includePermissionKey: true,
        includeExtendedInfo: true,
    };
    for await (const entry of root.listFilesAndDirectories(settings)) {
        assert.equal(entry.kind, "file");
        assert.equal(entry.fileId, shown.fileId);
        assert.equal(entry.attributes, "Archive");
        assert.equal(entry.permissionKey, shown.filePermissionKey);
        assert.equal(entry.properties.contentLength, 5);
        assert.equal(entry.properties.etag, shown.etag);
        assert.deepEqual(entry.properties.creationTime, shown.fileCreatedOn);
    }
});

test("names that XML cannot contain", async (t) => {
    const share = await newShare(t);
    const directory = share.getDirectoryClient("folder\uFFFF");
    await directory.create();
    await newFile(directory, "file\uFFFE", "1");
    assert.deepEqual(await names(directory), ["file\uFFFE"]);
    assert.deepEqual(await names(directory, { prefix: "file\uFFFE" }), ["file\uFFFE"]);
});

test("deleting a directory", async (t) => {
    const share = await newShare(t);
    const directory = share.getDirectoryClient("Papers");
    await directory.create();
    await newFile(directory, "Report", "12345");
    await refused(directory.delete(), 409, "DirectoryNotEmpty");
    await directory.deleteFile("Report");
    assert.equal((await directory.delete())._response.status, 202);
    assert.equal((await directory.deleteIfExists()).succeeded, false);
});
