// Block blobs uploaded in one request: content, properties, metadata and deletion.

import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Readable } from "node:stream";
import test from "node:test";

import {
    MIB,
    bytes,
    collect,
    contentOf,
    newBlob,
    newContainer,
    refused,
    text,
} from "./clients.mjs";

const md5Of = (content) => createHash("md5").update(content).digest();

for (const size of [0, 1, 511, 32 * 1024 + 1, MIB, 8 * MIB]) {
    test(`upload and download: ${size} bytes`, async (t) => {
        const blob = (await newContainer(t)).getBlockBlobClient("blob");
        const content = contentOf(size);
        const put = await blob.upload(content, size);
        assert.equal(put._response.status, 201);
        assert.deepEqual(put.contentMD5, md5Of(content));
        assert.equal(put.isServerEncrypted, true);
        const got = await blob.download();
        assert.equal(got.contentLength, size);
        assert.equal(got.etag, put.etag);
        assert.deepEqual(got.lastModified, put.lastModified);
        assert.deepEqual(got.contentMD5, md5Of(content));
        assert.deepEqual(await bytes(got), content);
    });
}

test("the properties of a blob", async (t) => {
    const blob = await newBlob(t, "content", { metadata: { key: "value" } });
    const shown = await blob.getProperties();
    assert.equal(shown.blobType, "BlockBlob");
    assert.equal(shown.contentLength, 7);
    assert.equal(shown.contentType, "application/octet-stream");
    assert.deepEqual(shown.contentMD5, md5Of("content"));
    assert.deepEqual(shown.metadata, { key: "value" });
    assert.deepEqual(shown.createdOn, shown.lastModified);
    assert.equal(shown.acceptRanges, "bytes");
    assert.equal(shown.leaseStatus, "unlocked");
    assert.equal(shown.leaseState, "available");
    assert.equal(shown.isServerEncrypted, true);
    assert.match(shown.etag, /^"0x[0-9A-F]+"$/);
});

test("an upload sets headers and metadata", async (t) => {
    const blobHTTPHeaders = {
        blobContentType: "text/html; charset=utf-8",
        blobContentEncoding: "identity",
        blobContentLanguage: "fr-CA",
        blobContentDisposition: 'attachment; filename="a b.html"',
        blobCacheControl: "max-age=60",
        blobContentMD5: md5Of("<p>"),
    };
    const blob = await newBlob(t, "<p>", { blobHTTPHeaders, metadata: { one: "1", two: "2" } });
    for (const shown of [await blob.getProperties(), await blob.download()]) {
        assert.equal(shown.contentType, "text/html; charset=utf-8");
        assert.equal(shown.contentEncoding, "identity");
        assert.equal(shown.contentLanguage, "fr-CA");
        assert.equal(shown.contentDisposition, 'attachment; filename="a b.html"');
        assert.equal(shown.cacheControl, "max-age=60");
        assert.deepEqual(shown.contentMD5, md5Of("<p>"));
        assert.deepEqual(shown.metadata, { one: "1", two: "2" });
    }
});

test("content with a wrong hash is refused", async (t) => {
    const blob = (await newContainer(t)).getBlockBlobClient("blob");
    const blobHTTPHeaders = { blobContentMD5: md5Of("one thing") };
    await refused(blob.upload("another", 7, { blobHTTPHeaders }), 400, "Md5Mismatch");
    assert.equal(await blob.exists(), false);
});

test("overwriting keeps only the creation time", async (t) => {
    const blobHTTPHeaders = { blobContentType: "text/plain", blobContentLanguage: "fr" };
    const blob = await newBlob(t, "old", { blobHTTPHeaders, metadata: { a: "b" } });
    const old = await blob.getProperties();
    await blob.upload("newer", 5);
    const shown = await blob.getProperties();
    assert.notEqual(shown.etag, old.etag);
    assert.deepEqual(shown.createdOn, old.createdOn);
    assert.equal(shown.contentType, "application/octet-stream");
    assert.equal(shown.contentLanguage, undefined);
    assert.deepEqual(shown.metadata, {});
    assert.equal(await text(await blob.download()), "newer");
});

test("an upload from a stream", async (t) => {
    const blob = (await newContainer(t)).getBlockBlobClient("blob");
    const pieces = Array.from({ length: 40 }, () => contentOf(100_000));
    let loaded = 0;
    const onProgress = (progress) => {
        loaded = progress.loadedBytes;
    };
    await blob.upload(() => Readable.from(pieces), 4_000_000, { onProgress });
    assert.equal(loaded, 4_000_000);
    assert.deepEqual(await blob.downloadToBuffer(), Buffer.concat(pieces));
});

test("an aborted upload leaves nothing", async (t) => {
    const container = await newContainer(t);
    const blob = container.getBlockBlobClient("blob");
    const controller = new AbortController();
    async function* halfway() {
        yield contentOf(MIB);
        controller.abort();
        yield contentOf(MIB);
    }
    const upload = blob.upload(() => Readable.from(halfway()), 2 * MIB, {
        abortSignal: controller.signal,
    });
    await assert.rejects(upload, { name: "AbortError" });
    assert.deepEqual(await collect(container.listBlobsFlat()), []);
});

test("text that is not ASCII", async (t) => {
    const blob = await newBlob(t, "étagère 書棚");
    assert.equal((await blob.downloadToBuffer()).toString(), "étagère 書棚");
});

test("data and files in one request each", async (t) => {
    const container = await newContainer(t);
    const directory = await mkdtemp(join(tmpdir(), "etagere-"));
    t.after(() => rm(directory, { recursive: true }));
    const content = contentOf(5 * MIB);
    const sent = join(directory, "sent");
    await writeFile(sent, content);
    await container.getBlockBlobClient("data").uploadData(content);
    await container.getBlockBlobClient("file").uploadFile(sent);
    for (const name of ["data", "file"]) {
        const received = join(directory, name);
        await container.getBlobClient(name).downloadToFile(received);
        assert.deepEqual(await readFile(received), content);
    }
});

// Ranges

test("ranges", async (t) => {
    const blob = await newBlob(t, "0123456789");
    for (const [offset, count, expected, range] of [
        [0, 1, "0", "bytes 0-0/10"],
        [3, 4, "3456", "bytes 3-6/10"],
        [7, undefined, "789", "bytes 7-9/10"],
        [8, 100, "89", "bytes 8-9/10"],
    ]) {
        const got = await blob.download(offset, count);
        assert.equal(got._response.status, 206);
        assert.equal(got.contentRange, range);
        assert.equal(got.contentLength, expected.length);
        assert.deepEqual(got.blobContentMD5, md5Of("0123456789"));
        assert.equal(await text(got), expected);
    }
    await refused(blob.download(10, 1), 416, "InvalidRange");
});

test("hashes of ranges", async (t) => {
    const blob = await newBlob(t, "..123456789..");
    const md5 = await blob.download(2, 9, { rangeGetContentMD5: true });
    assert.deepEqual(md5.contentMD5, md5Of("123456789"));
    assert.equal(await text(md5), "123456789");
    const crc64 = await blob.download(2, 9, { rangeGetContentCrc64: true });
    // The check value of CRC-64/NVME, the lowest byte first.
    assert.equal(Buffer.from(crc64.contentCrc64).toString("hex"), "8898790a86148bae");
    assert.equal(await text(crc64), "123456789");
});

test("hashes of ranges that are too large", async (t) => {
    const blob = (await newContainer(t)).getBlockBlobClient("blob");
    await blob.upload(contentOf(4 * MIB + 1), 4 * MIB + 1);
    await blob.download(0, 4 * MIB, { rangeGetContentMD5: true });
    for (const checksum of [{ rangeGetContentMD5: true }, { rangeGetContentCrc64: true }]) {
        const download = blob.download(0, 4 * MIB + 1, checksum);
        await refused(download, 400, "OutOfRangeInput");
    }
});

test("a download in concurrent blocks", async (t) => {
    const blob = (await newContainer(t)).getBlockBlobClient("blob");
    const content = contentOf(3 * MIB + 5);
    await blob.upload(content, content.length);
    const settings = { blockSize: 300_000, concurrency: 4 };
    assert.deepEqual(await blob.downloadToBuffer(0, undefined, settings), content);
    const middle = await blob.downloadToBuffer(1000, 2 * MIB, settings);
    assert.deepEqual(middle, content.subarray(1000, 1000 + 2 * MIB));
});

// Changes

test("setting headers replaces all of them", async (t) => {
    const blobHTTPHeaders = { blobContentType: "text/plain", blobContentLanguage: "fr" };
    const blob = await newBlob(t, "content", { blobHTTPHeaders, metadata: { kept: "yes" } });
    const changed = await blob.setHTTPHeaders({ blobCacheControl: "no-cache" });
    const shown = await blob.getProperties();
    assert.equal(shown.etag, changed.etag);
    assert.equal(shown.cacheControl, "no-cache");
    assert.equal(shown.contentLanguage, undefined);
    assert.equal(shown.contentMD5, undefined);
    assert.deepEqual(shown.metadata, { kept: "yes" });
    assert.equal(await text(await blob.download()), "content");
});

test("setting metadata replaces all of it", async (t) => {
    const blob = await newBlob(t, "content", { metadata: { first: "1", second: "2" } });
    const changed = await blob.setMetadata({ third: "3" });
    const shown = await blob.getProperties();
    assert.equal(shown.etag, changed.etag);
    assert.deepEqual(shown.metadata, { third: "3" });
    await blob.setMetadata();
    assert.deepEqual((await blob.getProperties()).metadata, {});
    await refused(blob.setMetadata({ "with-dash": "x" }), 400, "InvalidMetadata");
});

test("a blob is deleted if it exists", async (t) => {
    const blob = await newBlob(t);
    assert.equal(await blob.exists(), true);
    assert.equal((await blob.deleteIfExists())._response.status, 202);
    assert.equal(await blob.exists(), false);
    const again = await blob.deleteIfExists();
    assert.equal(again.succeeded, false);
    assert.equal(again.errorCode, "BlobNotFound");
});

test("operations on a missing blob", async (t) => {
    const blob = (await newContainer(t)).getBlobClient("missing");
    const missing = (request) => refused(request, 404, "BlobNotFound");
    const error = await missing(blob.download());
    assert.match(error.message, /^The specified blob does not exist\.\nRequestId:/);
    await missing(blob.getProperties());
    await missing(blob.setMetadata({}));
    await missing(blob.setHTTPHeaders({}));
    await missing(blob.delete());
    await missing(blob.downloadToBuffer());
});
