// Page blobs: writing and clearing pages, page ranges, and differences from snapshots.

import assert from "node:assert/strict";
import test from "node:test";

import { bytes, collect, contentOf, newContainer, refused, service } from "./clients.mjs";

const PAGE = 512;
const PAGES = 32;

async function newDisk(t, settings = {}) {
    const disk = (await newContainer(t)).getPageBlobClient("disk");
    await disk.create(PAGES * PAGE, settings);
    return disk;
}

const write = (disk, first, count = 1, settings = {}) =>
    disk.uploadPages(contentOf(count * PAGE), first * PAGE, count * PAGE, settings);

/** Returns the first and the last page of each range; the SDK's count is one byte too small. */
const inPages = (ranges) =>
    ranges.map(({ offset, count }) => {
        assert.equal(offset % PAGE, 0);
        assert.equal((count + 1) % PAGE, 0);
        return [offset / PAGE, (offset + count + 1) / PAGE - 1];
    });

/** Returns the same for ranges from the iterators, and marks cleared ones. */
const markedPages = (ranges) =>
    ranges.map(({ start, end, isClear }) => {
        assert.deepEqual([start % PAGE, end % PAGE], [0, PAGE - 1]);
        const pages = [start / PAGE, (end + 1) / PAGE - 1];
        return isClear ? [...pages, "cleared"] : pages;
    });

test("pages are written and cleared", async (t) => {
    const disk = await newDisk(t, { metadata: { its: "own" }, blobSequenceNumber: 7 });
    const content = contentOf(3 * PAGE);
    const written = await disk.uploadPages(content, 2 * PAGE, content.length);
    assert.equal(written._response.status, 201);
    assert.equal(written.blobSequenceNumber, 7);
    const expected = Buffer.alloc(PAGES * PAGE);
    content.copy(expected, 2 * PAGE);
    assert.deepEqual(await bytes(await disk.download()), expected);
    const cleared = await disk.clearPages(3 * PAGE, PAGE);
    expected.fill(0, 3 * PAGE, 4 * PAGE);
    assert.deepEqual(await bytes(await disk.download()), expected);
    const across = await bytes(await disk.download(PAGE + 500, 30));
    assert.deepEqual(across, expected.subarray(1012, 1042));
    const shown = await disk.getProperties();
    assert.equal(shown.blobType, "PageBlob");
    assert.equal(shown.etag, cleared.etag);
    assert.equal(shown.contentLength, PAGES * PAGE);
    assert.deepEqual(shown.metadata, { its: "own" });
});

test("invalid ranges", async (t) => {
    const disk = await newDisk(t);
    const { etag } = await disk.getProperties();
    const written = (offset, count) => disk.uploadPages(contentOf(count), offset, count);
    await refused(written(1, PAGE), 416, "InvalidPageRange");
    await refused(written(0, PAGE - 1), 416, "InvalidPageRange");
    await refused(written(PAGES * PAGE, PAGE), 416, "InvalidPageRange");
    await refused(disk.clearPages(PAGES * PAGE, PAGE), 416, "InvalidPageRange");
    assert.equal((await disk.getProperties()).etag, etag);
});

test("page ranges", async (t) => {
    const disk = await newDisk(t);
    assert.deepEqual((await disk.getPageRanges()).pageRange, []);
    for (const [first, count] of [[0, 1], [2, 3], [5, 1], [20, 2]]) await write(disk, first, count);
    const response = await disk.getPageRanges(0, PAGES * PAGE);
    assert.deepEqual(inPages(response.pageRange), [[0, 0], [2, 5], [20, 21]]);
    assert.deepEqual(response.clearRange, []);
    assert.equal(response.blobContentLength, PAGES * PAGE);
    assert.equal(response.etag, (await disk.getProperties()).etag);
    const part = await disk.getPageRanges(4 * PAGE, 17 * PAGE);
    assert.deepEqual(inPages(part.pageRange), [[4, 5], [20, 20]]);
});

test("paged lists of page ranges", async (t) => {
    const disk = await newDisk(t);
    const expected = [];
    for (let first = 0; first < PAGES; first += 3) {
        await write(disk, first);
        expected.push([first, first]);
    }
    const all = await collect(disk.listPageRanges());
    assert.deepEqual(markedPages(all), expected);
    for (const maxPageSize of [1, 2, 5, expected.length, 5000]) {
        const sizes = [];
        for await (const page of disk.listPageRanges().byPage({ maxPageSize })) {
            sizes.push(page.pageRange?.length ?? 0);
        }
        assert.equal(sizes.reduce((sum, size) => sum + size, 0), expected.length);
        assert.ok(sizes.every((size) => size <= maxPageSize), `${sizes} of ${maxPageSize}`);
    }
    const pages = disk.listPageRanges().byPage({ maxPageSize: 2 });
    const { value: first } = await pages.next();
    const rest = disk.listPageRanges().byPage({ continuationToken: first.continuationToken });
    const { value: next } = await rest.next();
    assert.deepEqual(
        next.pageRange.map(({ start }) => start / PAGE),
        expected.slice(2).map(([page]) => page),
    );
});

test("changes since a snapshot", async (t) => {
    const disk = await newDisk(t);
    await write(disk, 0, 4);
    await write(disk, 10, 2);
    const { snapshot } = await disk.createSnapshot();
    await write(disk, 2);
    await write(disk, 6, 2);
    await disk.clearPages(10 * PAGE, PAGE);
    const response = await disk.getPageRangesDiff(0, PAGES * PAGE, snapshot);
    assert.deepEqual(inPages(response.pageRange), [[2, 2], [6, 7]]);
    assert.deepEqual(inPages(response.clearRange), [[10, 10]]);
    const part = await disk.getPageRangesDiff(7 * PAGE, 2 * PAGE, snapshot);
    assert.deepEqual(inPages(part.pageRange), [[7, 7]]);
    assert.deepEqual(part.clearRange, []);
    const expected = [[2, 2], [6, 7], [10, 10, "cleared"]];
    const listed = await collect(disk.listPageRangesDiff(0, PAGES * PAGE, snapshot));
    assert.deepEqual(markedPages(listed), expected);
    const found = [];
    const segments = disk.listPageRangesDiff(0, PAGES * PAGE, snapshot).byPage({ maxPageSize: 1 });
    for await (const { pageRange = [], clearRange = [] } of segments) {
        assert.ok(pageRange.length + clearRange.length <= 1);
        found.push(...pageRange, ...clearRange.map((range) => ({ ...range, isClear: true })));
    }
    assert.deepEqual(markedPages(found), expected);
});

test("changes between snapshots", async (t) => {
    const disk = await newDisk(t);
    await write(disk, 0);
    const { snapshot: older } = await disk.createSnapshot();
    await write(disk, 4);
    const { snapshot: newer } = await disk.createSnapshot();
    await write(disk, 8);
    const past = disk.withSnapshot(newer);
    const response = await past.getPageRangesDiff(0, PAGES * PAGE, older);
    assert.deepEqual(inPages(response.pageRange), [[4, 4]]);
    const byAddress = await disk.getPageRangesDiffForManagedDisks(
        0,
        PAGES * PAGE,
        disk.withSnapshot(older).url,
    );
    assert.deepEqual(inPages(byAddress.pageRange), [[4, 4], [8, 8]]);
    const unknown = "2020-01-01T00:00:00.0000000Z";
    const diff = disk.getPageRangesDiff(0, PAGES * PAGE, unknown);
    await refused(diff, 409, "PreviousSnapshotNotFound");
});

test("sequence numbers", async (t) => {
    const disk = await newDisk(t);
    const now = async () => (await disk.getProperties()).blobSequenceNumber;
    await disk.updateSequenceNumber("update", 5);
    assert.equal(await now(), 5);
    await disk.updateSequenceNumber("max", 3);
    assert.equal(await now(), 5);
    await disk.updateSequenceNumber("increment");
    assert.equal(await now(), 6);
    const wanted = (conditions) => write(disk, 0, 1, { conditions });
    const unmet = [412, "SequenceNumberConditionNotMet"];
    await refused(wanted({ ifSequenceNumberEqualTo: 5 }), ...unmet);
    await refused(wanted({ ifSequenceNumberLessThan: 6 }), ...unmet);
    await refused(wanted({ ifSequenceNumberLessThanOrEqualTo: 5 }), ...unmet);
    await wanted({ ifSequenceNumberEqualTo: 6, ifSequenceNumberLessThan: 7 });
});

test("resizing", async (t) => {
    const disk = await newDisk(t);
    await write(disk, PAGES - 2, 2);
    await disk.resize((PAGES - 1) * PAGE);
    await disk.resize((PAGES + 1) * PAGE);
    const { pageRange } = await disk.getPageRanges();
    assert.deepEqual(inPages(pageRange), [[PAGES - 2, PAGES - 2]]);
    assert.equal((await disk.getProperties()).contentLength, (PAGES + 1) * PAGE);
    await refused(disk.resize(PAGE + 1), 400, "InvalidHeaderValue");
});

test("a blob of the maximum size", async (t) => {
    const disk = (await newContainer(t)).getPageBlobClient("disk");
    const size = 8 * 1024 ** 4;
    await disk.create(size);
    const content = contentOf(PAGE);
    await disk.uploadPages(content, size - PAGE, PAGE);
    assert.deepEqual(await bytes(await disk.download(size - PAGE, PAGE)), content);
    const [range, ...others] = await collect(disk.listPageRanges());
    assert.deepEqual([range.start, range.end], [size - PAGE, size - 1]);
    assert.deepEqual(others, []);
});

test("incremental copies of snapshots", async (t) => {
    const disk = await newDisk(t);
    const copy = service.getContainerClient(disk.containerName).getPageBlobClient("copy");
    const content = contentOf(PAGE);
    await disk.uploadPages(content, 0, PAGE);
    const first = await disk.createSnapshot();
    const started = await copy.startCopyIncremental(disk.withSnapshot(first.snapshot).url);
    assert.equal(started._response.status, 202);
    await write(disk, 1);
    const second = await disk.createSnapshot();
    let shown = await copy.getProperties();
    assert.equal(shown.isIncrementalCopy, true);
    assert.equal(shown.copyStatus, "success");
    const earlier = shown.destinationSnapshot;
    const past = copy.withSnapshot(earlier);
    assert.deepEqual(await bytes(await past.download(0, PAGE)), content);
    await copy.startCopyIncremental(disk.withSnapshot(second.snapshot).url);
    shown = await copy.getProperties();
    assert.notEqual(shown.destinationSnapshot, earlier);
    const next = await copy.withSnapshot(shown.destinationSnapshot).getPageRanges();
    assert.deepEqual(inPages(next.pageRange), [[0, 1]]);
});
