// Blocks: staging, committing and listing.

import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { Readable } from "node:stream";
import test from "node:test";

import {
    MIB,
    OTHER_ETAG,
    collect,
    contentOf,
    newBlob,
    newContainer,
    refused,
    text,
} from "./clients.mjs";

const md5Of = (content) => createHash("md5").update(content).digest();
const id = (name) => Buffer.from(name).toString("base64");
const ids = (...names) => names.map(id);

const newName = async (t) => (await newContainer(t)).getBlockBlobClient("blob");

async function stage(blob, blocks) {
    for (const [name, content] of Object.entries(blocks)) {
        await blob.stageBlock(id(name), content, content.length);
    }
}

/** Returns the names of the committed and of the uncommitted blocks in the response. */
async function shown(blob, kind = "all") {
    const { committedBlocks, uncommittedBlocks } = await blob.getBlockList(kind);
    const names = (blocks) =>
        blocks?.map(({ name }) => Buffer.from(name, "base64").toString()) ?? [];
    return [names(committedBlocks), names(uncommittedBlocks)];
}

test("a blob has the blocks in the order of the list", async (t) => {
    const blob = await newName(t);
    await stage(blob, { a: "one ", b: "two ", c: "three " });
    const committed = await blob.commitBlockList(ids("c", "a", "b", "a"));
    assert.equal(committed._response.status, 201);
    assert.equal((await blob.getProperties()).etag, committed.etag);
    assert.equal(await text(await blob.download()), "three one two one ");
    assert.deepEqual(await shown(blob), [["c", "a", "b", "a"], []]);
});

test("staging does not change the blob", async (t) => {
    const blob = await newBlob(t, "content");
    const { etag } = await blob.getProperties();
    const staged = await blob.stageBlock(id("a"), "new", 3);
    assert.equal(staged._response.status, 201);
    assert.equal((await blob.getProperties()).etag, etag);
    assert.equal(await text(await blob.download()), "content");
    assert.deepEqual(await shown(blob), [[], ["a"]]);
});

test("a commit replaces all properties", async (t) => {
    const blobHTTPHeaders = { blobContentType: "text/plain", blobContentLanguage: "fr" };
    const blob = await newBlob(t, "old", { blobHTTPHeaders, metadata: { a: "b" } });
    await stage(blob, { a: "new" });
    await blob.commitBlockList(ids("a"), {
        blobHTTPHeaders: { blobCacheControl: "no-store" },
        metadata: { c: "d" },
        tier: "Cool",
    });
    const properties = await blob.getProperties();
    assert.equal(properties.contentType, "application/octet-stream");
    assert.equal(properties.contentLanguage, undefined);
    assert.equal(properties.cacheControl, "no-store");
    assert.deepEqual(properties.metadata, { c: "d" });
    assert.equal(properties.accessTier, "Cool");
});

test("the latest block is the staged one, or else the committed one", async (t) => {
    const blob = await newName(t);
    await stage(blob, { a: "kept ", b: "replaced" });
    await blob.commitBlockList(ids("a", "b"));
    await stage(blob, { b: "new" });
    await blob.commitBlockList(ids("a", "b"));
    assert.equal(await text(await blob.download()), "kept new");
});

test("an unknown block changes nothing", async (t) => {
    const blob = await newBlob(t, "old");
    const { etag } = await blob.getProperties();
    await stage(blob, { a: "new" });
    const error = await refused(blob.commitBlockList(ids("a", "?")), 400, "InvalidBlockList");
    assert.equal(error.details.BlockId, id("?"));
    assert.equal((await blob.getProperties()).etag, etag);
    assert.deepEqual(await shown(blob), [[], ["a"]]);
});

test("of two writers, the second commit fails", async (t) => {
    const blob = await newName(t);
    await stage(blob, { a: "of the first", b: "of the second" });
    await blob.commitBlockList(ids("a"));
    await refused(blob.commitBlockList(ids("b")), 400, "InvalidBlockList");
    assert.equal(await text(await blob.download()), "of the first");
});

test("types of block lists", async (t) => {
    const blob = await newName(t);
    await refused(blob.getBlockList("all"), 404, "BlobNotFound");
    await stage(blob, { a: "12345", b: "123" });
    assert.deepEqual(await shown(blob), [[], ["a", "b"]]);
    await blob.commitBlockList(ids("b", "a"));
    await stage(blob, { c: "1" });
    assert.deepEqual(await shown(blob, "committed"), [["b", "a"], []]);
    assert.deepEqual(await shown(blob, "uncommitted"), [[], ["c"]]);
    const { blobContentLength, committedBlocks } = await blob.getBlockList("all");
    assert.equal(blobContentLength, 8);
    assert.deepEqual(
        committedBlocks.map(({ size }) => size),
        [3, 5],
    );
});

test("uncommitted blobs are listed on request", async (t) => {
    const container = await newContainer(t);
    const blob = container.getBlockBlobClient("blob");
    await stage(blob, { a: "content" });
    assert.equal(await blob.exists(), false);
    assert.deepEqual(await collect(container.listBlobsFlat()), []);
    const [listed] = await collect(container.listBlobsFlat({ includeUncommitedBlobs: true }));
    assert.equal(listed.name, "blob");
    assert.equal(listed.properties.contentLength, 0);
});

test("invalid block ids", async (t) => {
    const blob = await newName(t);
    const staged = (name) => blob.stageBlock(name, "content", 7);
    await refused(staged("no base64!"), 400, "InvalidQueryParameterValue");
    await refused(staged(id("x".repeat(65))), 400, "InvalidBlockId");
    await staged(id("x".repeat(64)));
    await refused(staged(id("x")), 400, "InvalidBlobOrBlock");
    assert.deepEqual(await shown(blob), [[], ["x".repeat(64)]]);
});

test("checksums of blocks", async (t) => {
    const blob = await newName(t);
    const staged = (settings) => blob.stageBlock(id("a"), "123456789", 9, settings);
    const wrong = md5Of("another");
    await refused(staged({ transactionalContentMD5: wrong }), 400, "Md5Mismatch");
    const md5 = await staged({ transactionalContentMD5: md5Of("123456789") });
    assert.deepEqual(md5.contentMD5, md5Of("123456789"));
    // The check value of CRC-64/NVME, the lowest byte first.
    const crc64 = Buffer.from("8898790a86148bae", "hex");
    assert.equal(md5.xMsContentCrc64, undefined);
    const { xMsContentCrc64 } = await staged({ transactionalContentCrc64: crc64 });
    assert.deepEqual(Buffer.from(xMsContentCrc64), crc64);
    const changed = Buffer.from(crc64).reverse();
    await refused(staged({ transactionalContentCrc64: changed }), 400, "Crc64Mismatch");
});

test("conditions on a commit", async (t) => {
    const blob = await newBlob(t, "old");
    const { etag } = await blob.getProperties();
    await stage(blob, { a: "new" });
    const commit = (conditions) => blob.commitBlockList(ids("a"), { conditions });
    await refused(commit({ ifMatch: OTHER_ETAG }), 412, "ConditionNotMet");
    await refused(commit({ ifNoneMatch: etag }), 412, "ConditionNotMet");
    await refused(commit({ ifNoneMatch: "*" }), 409, "BlobAlreadyExists");
    await commit({ ifMatch: etag });
    assert.equal(await text(await blob.download()), "new");
});

test("large uploads in concurrent blocks", async (t) => {
    const container = await newContainer(t);
    const content = contentOf(3 * MIB + 17);
    const data = container.getBlockBlobClient("data");
    const settings = { blockSize: 300_000, maxSingleShotSize: 300_000, concurrency: 4 };
    await data.uploadData(content, { ...settings, metadata: { large: "yes" } });
    const stream = container.getBlockBlobClient("stream");
    await stream.uploadStream(Readable.from([content]), 300_000, 4);
    for (const blob of [data, stream]) {
        const { committedBlocks } = await blob.getBlockList("committed");
        assert.equal(committedBlocks.length, Math.ceil(content.length / 300_000));
        assert.deepEqual(await blob.downloadToBuffer(), content);
        const across = await blob.downloadToBuffer(299_990, 300_020);
        assert.deepEqual(across, content.subarray(299_990, 600_010));
    }
    assert.deepEqual((await data.getProperties()).metadata, { large: "yes" });
});
