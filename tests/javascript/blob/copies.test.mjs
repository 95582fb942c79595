// Copies: asynchronous with a poller, synchronous, and aborted.

import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import test from "node:test";

import { BlobSASPermissions } from "@azure/storage-blob";

import {
    HOUR_MS,
    OTHER_ETAG,
    bytes,
    collect,
    contentOf,
    fromNow,
    newContainer,
    refused,
    service,
    text,
} from "./clients.mjs";

const md5Of = (content) => createHash("md5").update(content).digest();
const UNKNOWN = "11111111-2222-3333-4444-555555555555";

/** Returns a blob and a client for its copy. */
async function newPair(t, content = "content", settings = {}) {
    const container = await newContainer(t);
    const source = container.getBlockBlobClient("source");
    await source.upload(content, Buffer.byteLength(content), settings);
    return [source, container.getBlockBlobClient("copy")];
}

/** Returns the URL of a blob with a token to read it. */
function readable(blob, letters = "r") {
    const permissions = BlobSASPermissions.parse(letters);
    return blob.generateSasUrl({ permissions, expiresOn: fromNow(HOUR_MS) });
}

async function copied(copy, source, settings = {}) {
    const poller = await copy.beginCopyFromURL(source.url, { intervalInMs: 20, ...settings });
    return poller.pollUntilDone();
}

test("a copy with a poller", async (t) => {
    const content = contentOf(1_000_003);
    const [source, copy] = await newPair(t, content, {
        blobHTTPHeaders: { blobContentType: "text/plain", blobContentLanguage: "fr" },
        metadata: { its: "own" },
    });
    const done = await copied(copy, source);
    assert.equal(done._response.status, 202);
    assert.equal(done.copyStatus, "success");
    const shown = await copy.getProperties();
    assert.equal(shown.etag, done.etag);
    assert.equal(shown.copyId, done.copyId);
    assert.equal(shown.copyStatus, "success");
    assert.equal(shown.copySource, source.url);
    assert.equal(shown.copyProgress, `${content.length}/${content.length}`);
    assert.ok(shown.copyCompletedOn instanceof Date);
    assert.equal(shown.contentType, "text/plain");
    assert.equal(shown.contentLanguage, "fr");
    assert.deepEqual(shown.metadata, { its: "own" });
    await source.upload("other", 5);
    await source.delete();
    assert.deepEqual(await bytes(await copy.download()), content);
});

test("a poller can be resumed by another", async (t) => {
    const [source, copy] = await newPair(t);
    const begun = await copy.beginCopyFromURL(source.url, { intervalInMs: 20 });
    const settings = { intervalInMs: 20, resumeFrom: begun.toString() };
    const resumed = await copy.beginCopyFromURL(source.url, settings);
    const { copyId } = await begun.pollUntilDone();
    // The same copy, and not another.
    assert.equal((await resumed.pollUntilDone()).copyId, copyId);
    assert.equal((await copy.getProperties()).copyId, copyId);
});

test("properties in the request replace those of the source", async (t) => {
    const [source, copy] = await newPair(t, "content", { metadata: { its: "own" } });
    await copied(copy, source, { metadata: { other: "things" }, tier: "Cool", tags: { a: "1" } });
    const shown = await copy.getProperties();
    assert.deepEqual(shown.metadata, { other: "things" });
    assert.equal(shown.accessTier, "Cool");
    assert.deepEqual((await copy.getTags()).tags, { a: "1" });
});

test("conditions on source and destination", async (t) => {
    const [source, copy] = await newPair(t);
    await copy.upload("old", 3);
    const [{ etag: ofSource }, { etag: ofCopy }] = await Promise.all([
        source.getProperties(),
        copy.getProperties(),
    ]);
    const of = (sourceConditions, conditions = {}) =>
        copied(copy, source, { sourceConditions, conditions });
    await refused(of({ ifMatch: OTHER_ETAG }), 412, "SourceConditionNotMet");
    await refused(of({ ifNoneMatch: ofSource }), 412, "SourceConditionNotMet");
    await refused(of({}, { ifMatch: OTHER_ETAG }), 412, "ConditionNotMet");
    assert.equal(await text(await copy.download()), "old");
    await of({ ifMatch: ofSource }, { ifMatch: ofCopy });
    assert.equal(await text(await copy.download()), "content");
});

test("copying a snapshot over its blob", async (t) => {
    const [source] = await newPair(t, "old");
    const past = source.withSnapshot((await source.createSnapshot()).snapshot);
    await source.upload("new", 3);
    await copied(source, past);
    assert.equal(await text(await source.download()), "old");
    assert.equal(await text(await past.download()), "old");
});

test("page and append blobs keep their type", async (t) => {
    const container = await newContainer(t);
    const disk = container.getPageBlobClient("disk");
    await disk.create(4096, { blobSequenceNumber: 3 });
    await disk.uploadPages(contentOf(512), 1024, 512);
    const log = container.getAppendBlobClient("log");
    await log.create();
    await log.appendBlock("line", 4);
    const diskCopy = container.getPageBlobClient("disk copy");
    const logCopy = container.getAppendBlobClient("log copy");
    await copied(diskCopy, disk);
    await copied(logCopy, log);
    assert.equal((await diskCopy.getProperties()).blobSequenceNumber, 3);
    const [range] = await collect(diskCopy.listPageRanges());
    assert.deepEqual([range.start, range.end], [1024, 1535]);
    await logCopy.appendBlock(", another", 9);
    assert.equal(await text(await logCopy.download()), "line, another");
    assert.equal(await text(await log.download()), "line");
    await refused(copied(diskCopy, log), 409, "InvalidBlobType");
});

test("listings and downloads have the copy properties", async (t) => {
    const [source, copy] = await newPair(t);
    const { copyId } = await copied(copy, source);
    const container = service.getContainerClient(copy.containerName);
    const [listed, ofSource] = await collect(container.listBlobsFlat({ includeCopy: true }));
    assert.deepEqual([listed.name, ofSource.name], ["copy", "source"]);
    assert.equal(listed.properties.copyId, copyId);
    assert.equal(listed.properties.copyStatus, "success");
    assert.equal(listed.properties.copySource, source.url);
    assert.equal(ofSource.properties.copyId, undefined);
    const down = await copy.download();
    assert.equal(down.copyId, copyId);
    await bytes(down);
});

test("a synchronous copy", async (t) => {
    const [source, copy] = await newPair(t, "content", { metadata: { its: "own" } });
    const done = await copy.syncCopyFromURL(await readable(source), {
        sourceContentMD5: md5Of("content"),
        tags: { a: "1" },
        tier: "Cool",
    });
    assert.equal(done._response.status, 202);
    assert.equal(done.copyStatus, "success");
    assert.deepEqual(Buffer.from(done.contentMD5), md5Of("content"));
    assert.equal(await text(await copy.download()), "content");
    const shown = await copy.getProperties();
    assert.deepEqual(shown.metadata, { its: "own" });
    assert.equal(shown.accessTier, "Cool");
    assert.deepEqual((await copy.getTags()).tags, { a: "1" });
});

test("checks of synchronous copies", async (t) => {
    const [source, copy] = await newPair(t);
    const settings = { sourceContentMD5: md5Of("another") };
    await refused(copy.syncCopyFromURL(await readable(source), settings), 400, "Md5Mismatch");
    assert.equal(await copy.exists(), false);
    await source.delete();
    const missing = copy.syncCopyFromURL(await readable(source));
    await refused(missing, 404, "CannotVerifyCopySource");
    assert.equal(await copy.exists(), false);
});

test("tags are copied on request", async (t) => {
    const [source, copy] = await newPair(t, "content", { tags: { from: "source" } });
    const url = await readable(source, "rt");
    await copy.syncCopyFromURL(url, { copySourceTags: "COPY" });
    assert.deepEqual((await copy.getTags()).tags, { from: "source" });
    await copy.syncCopyFromURL(url, { copySourceTags: "REPLACE", tags: { its: "own" } });
    assert.deepEqual((await copy.getTags()).tags, { its: "own" });
    await copy.syncCopyFromURL(url);
    assert.deepEqual((await copy.getTags()).tags, {});
});

test("aborting a finished copy", async (t) => {
    const [source, copy] = await newPair(t);
    await refused(copy.abortCopyFromURL(UNKNOWN), 404, "BlobNotFound");
    const poller = await copy.beginCopyFromURL(source.url, { intervalInMs: 20 });
    const { copyId } = await poller.pollUntilDone();
    await refused(copy.abortCopyFromURL(copyId), 409, "NoPendingCopyOperation");
    await refused(source.abortCopyFromURL(UNKNOWN), 409, "NoPendingCopyOperation");
    // The poller knows that, and sends no request.
    await poller.cancelOperation();
    assert.equal(await text(await copy.download()), "content");
    assert.equal((await copy.getProperties()).copyStatus, "success");
});

test("a missing source", async (t) => {
    const [source, copy] = await newPair(t);
    await source.delete();
    await refused(copied(copy, source), 404, "BlobNotFound");
    assert.equal(await copy.exists(), false);
});
