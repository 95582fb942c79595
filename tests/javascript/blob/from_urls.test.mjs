// Uploads from a URL: blobs, blocks, pages and appended blocks.

import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import test from "node:test";

import { BlobSASPermissions } from "@azure/storage-blob";

import {
    HOUR_MS,
    OTHER_ETAG,
    bytes,
    contentOf,
    fromNow,
    newContainer,
    refused,
    service,
    text,
} from "./clients.mjs";

const md5Of = (content) => createHash("md5").update(content).digest();
const id = (name) => Buffer.from(name).toString("base64");
const CONTENT = contentOf(100_000);

/** Returns a new source blob, and its URL with a token to read it. */
async function newSource(t, content = CONTENT, settings = {}) {
    const source = (await newContainer(t)).getBlockBlobClient("source");
    await source.upload(content, content.length, settings);
    const permissions = BlobSASPermissions.parse("r");
    return [source, await source.generateSasUrl({ permissions, expiresOn: fromNow(HOUR_MS) })];
}

const beside = (blob) => service.getContainerClient(blob.containerName);

test("a blob from a URL", async (t) => {
    const [source, url] = await newSource(t, CONTENT, {
        blobHTTPHeaders: { blobContentType: "text/plain" },
        metadata: { its: "own" },
        tier: "Cool",
    });
    const blob = beside(source).getBlockBlobClient("blob");
    const created = await blob.syncUploadFromURL(url, { sourceContentMD5: md5Of(CONTENT) });
    assert.equal(created._response.status, 201);
    const shown = await blob.getProperties();
    assert.equal(shown.etag, created.etag);
    assert.equal(shown.contentType, "text/plain");
    assert.deepEqual(await bytes(await blob.download()), CONTENT);
    await source.delete();
    assert.deepEqual(await bytes(await blob.download()), CONTENT);
});

test("properties in the request replace those of the source", async (t) => {
    const [source, url] = await newSource(t, CONTENT, {
        blobHTTPHeaders: { blobContentType: "text/plain", blobContentLanguage: "fr" },
    });
    const blob = beside(source).getBlockBlobClient("blob");
    await blob.syncUploadFromURL(url, {
        blobHTTPHeaders: { blobContentType: "text/other" },
        copySourceBlobProperties: false,
        metadata: { given: "here" },
        tags: { a: "1" },
        tier: "Cool",
    });
    const shown = await blob.getProperties();
    assert.equal(shown.contentType, "text/other");
    assert.equal(shown.contentLanguage, undefined);
    assert.deepEqual(shown.metadata, { given: "here" });
    assert.equal(shown.accessTier, "Cool");
    assert.deepEqual((await blob.getTags()).tags, { a: "1" });
});

test("conditions on source and destination", async (t) => {
    const [source, url] = await newSource(t);
    const blob = beside(source).getBlockBlobClient("blob");
    const { etag } = await blob.upload("old", 3);
    const upload = (sourceConditions, conditions = {}) =>
        blob.syncUploadFromURL(url, { sourceConditions, conditions });
    const error = await refused(upload({ ifMatch: OTHER_ETAG }), 412, "CannotVerifyCopySource");
    assert.equal(error.details.CopySourceErrorCode, "ConditionNotMet", error);
    await refused(upload({}, { ifMatch: OTHER_ETAG }), 412, "ConditionNotMet");
    await refused(upload({}, { ifNoneMatch: "*" }), 409, "BlobAlreadyExists");
    assert.equal(await text(await blob.download()), "old");
    await upload({ ifNoneMatch: OTHER_ETAG }, { ifMatch: etag });
    assert.deepEqual(await bytes(await blob.download()), CONTENT);
});

test("blocks from ranges of another blob", async (t) => {
    const [source, url] = await newSource(t);
    const blob = beside(source).getBlockBlobClient("blob");
    const staged = await blob.stageBlockFromURL(id("a"), url, 60_000, 40_000, {
        sourceContentMD5: md5Of(CONTENT.subarray(60_000)),
    });
    assert.equal(staged._response.status, 201);
    await blob.stageBlockFromURL(id("b"), url, 0, 60_000);
    await blob.stageBlockFromURL(id("c"), url);
    await blob.stageBlock(id("d"), "sent", 4);
    await source.delete();
    await blob.commitBlockList(["b", "a", "c", "d"].map(id));
    const expected = Buffer.concat([CONTENT, CONTENT, Buffer.from("sent")]);
    assert.deepEqual(await bytes(await blob.download()), expected);
});

test("pages from ranges of another blob", async (t) => {
    const [source, url] = await newSource(t);
    const disk = beside(source).getPageBlobClient("disk");
    await disk.create(8192);
    const content = CONTENT.subarray(1000, 1000 + 1024);
    const written = await disk.uploadPagesFromURL(url, 1000, 2048, 1024, {
        sourceContentMD5: md5Of(content),
    });
    assert.equal(written._response.status, 201);
    const expected = Buffer.alloc(8192);
    content.copy(expected, 2048);
    assert.deepEqual(await bytes(await disk.download()), expected);
    const unmet = { conditions: { ifSequenceNumberLessThan: 0, ifMatch: OTHER_ETAG } };
    await refused(disk.uploadPagesFromURL(url, 0, 0, 512, unmet), 412, "ConditionNotMet");
});

test("appended blocks from another blob", async (t) => {
    const [source, url] = await newSource(t);
    const log = beside(source).getAppendBlobClient("log");
    await log.create();
    await log.appendBlock("sent ", 5);
    const added = await log.appendBlockFromURL(url, 10, 50, { conditions: { appendPosition: 5 } });
    assert.equal(added._response.status, 201);
    assert.deepEqual([added.blobAppendOffset, added.blobCommittedBlockCount], ["5", 2]);
    const behind = { conditions: { appendPosition: 5 } };
    const again = log.appendBlockFromURL(url, 10, 50, behind);
    await refused(again, 412, "AppendPositionConditionNotMet");
    const expected = Buffer.concat([Buffer.from("sent "), CONTENT.subarray(10, 60)]);
    assert.deepEqual(await bytes(await log.download()), expected);
});

test("a source with a wrong checksum is refused", async (t) => {
    const [source, url] = await newSource(t);
    const container = beside(source);
    const blob = container.getBlockBlobClient("blob");
    const log = container.getAppendBlobClient("log");
    await log.create();
    const settings = { sourceContentMD5: md5Of("another") };
    await refused(blob.syncUploadFromURL(url, settings), 400, "Md5Mismatch");
    await refused(blob.stageBlockFromURL(id("a"), url, 0, 100, settings), 400, "Md5Mismatch");
    await refused(log.appendBlockFromURL(url, 0, 100, settings), 400, "Md5Mismatch");
    assert.equal(await blob.exists(), false);
    await refused(blob.getBlockList("all"), 404, "BlobNotFound");
    assert.equal((await log.getProperties()).contentLength, 0);
});

test("a source without permission to read it", async (t) => {
    const [source] = await newSource(t);
    const blob = beside(source).getBlockBlobClient("blob");
    await refused(blob.syncUploadFromURL(source.url), 401, "CannotVerifyCopySource");
    assert.equal(await blob.exists(), false);
});
