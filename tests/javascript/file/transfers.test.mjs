// Transfers of files: in parallel, from streams, as ranges and as copies.

import assert from "node:assert/strict";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Readable } from "node:stream";
import test from "node:test";

import { HOUR_MS, fromNow, newFile, newShare, refused } from "./clients.mjs";

const KIB = 1024;
const MIB = 1024 * KIB;

/** Returns bytes that differ at every position. */
function bytes(length) {
    const content = Buffer.alloc(length);
    for (let at = 0; at + 4 <= length; at += 4) content.writeUInt32LE(at, at);
    return content;
}

test("a file on disk in parallel ranges", async (t) => {
    const share = await newShare(t);
    const place = await mkdtemp(join(tmpdir(), "transfers-"));
    t.after(() => rm(place, { recursive: true }));
    const content = bytes(5 * MIB + 4);
    await writeFile(join(place, "source"), content);
    const file = share.rootDirectoryClient.getFileClient("Report");
    await file.uploadFile(join(place, "source"), { rangeSize: 256 * KIB, concurrency: 8 });
    await file.downloadToFile(join(place, "target"));
    assert.ok((await readFile(join(place, "target"))).equals(content));
    const parallel = { rangeSize: 300 * KIB, concurrency: 8 };
    assert.ok((await file.downloadToBuffer(1, undefined, parallel)).equals(content.subarray(1)));
});

test("a stream", async (t) => {
    const share = await newShare(t);
    const content = bytes(3 * MIB);
    const file = share.rootDirectoryClient.getFileClient("Report");
    const parts = Array.from({ length: 48 }, (_, part) => content.subarray(part << 16, (part + 1) << 16));
    await file.uploadStream(Readable.from(parts), content.length, MIB, 3);
    assert.ok((await file.downloadToBuffer()).equals(content));
    const small = await file.download(10, 1000, { rangeGetContentMD5: true });
    assert.equal(small.contentRange, `bytes 10-1009/${content.length}`);
    assert.equal(small.contentMD5.length, 16);
    await small.readableStreamBody.resume();
});

test("a range with a checksum", async (t) => {
    const share = await newShare(t);
    const file = await newFile(share.rootDirectoryClient, "Report", "12345");
    await refused(
        file.uploadRange("abc", 0, 3, { contentMD5: new Uint8Array(16) }),
        400,
        "Md5Mismatch",
    );
    assert.equal((await file.downloadToBuffer()).toString(), "12345");
    await refused(file.uploadRange("abc", 3, 3), 416, "InvalidRange");
});

test("ranges that differ from a snapshot", async (t) => {
    const share = await newShare(t);
    const file = share.rootDirectoryClient.getFileClient("Report");
    await file.create(4096);
    await file.uploadRange("x".repeat(1024), 0, 1024);
    const { snapshot } = await share.createSnapshot();
    await file.uploadRange("y".repeat(512), 1024, 512);
    await file.clearRange(0, 512);
    const { ranges, clearRanges } = await file.getRangeListDiff(snapshot);
    assert.deepEqual(ranges.map(({ start, end }) => [start, end]), [[1024, 1535]]);
    assert.deepEqual(clearRanges.map(({ start, end }) => [start, end]), [[0, 511]]);
    const frozen = share.withSnapshot(snapshot).rootDirectoryClient.getFileClient("Report");
    assert.equal((await frozen.downloadToBuffer(0, 1024)).toString(), "x".repeat(1024));
    await refused(frozen.setMetadata({}), 400, "InvalidQueryParameterValue");
});

test("copies", async (t) => {
    const share = await newShare(t);
    const root = share.rootDirectoryClient;
    const source = await newFile(root, "Source", "12345");
    const target = root.getFileClient("Target");
    const started = await target.startCopyFromURL(source.url, { metadata: { copied: "yes" } });
    assert.equal(started.copyStatus, "success");
    assert.equal((await target.downloadToBuffer()).toString(), "12345");
    const shown = await target.getProperties();
    assert.deepEqual([shown.copyId, shown.metadata], [started.copyId, { copied: "yes" }]);
    await refused(target.abortCopyFromURL(started.copyId), 409, "NoPendingCopyOperation");
    const sas = await source.generateSasUrl({ permissions: "r", expiresOn: fromNow(HOUR_MS) });
    await target.uploadRangeFromURL(sas, 1, 0, 3);
    assert.equal((await target.downloadToBuffer()).toString(), "23445");
});
