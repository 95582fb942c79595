// Shares: properties, snapshots, leases, permissions and handles.

import assert from "node:assert/strict";
import test from "node:test";

import { collect, newFile, newShare, refused, service } from "./clients.mjs";

const DESCRIPTOR =
    "O:S-1-5-21-2127521184-1604012920-1887927527-21560751G:S-1-5-21-2127521184-1604012920-1887927527-513" +
    "D:AI(A;;FA;;;SY)(A;;FA;;;BA)";

test("properties, quota and metadata", async (t) => {
    const share = await newShare(t, { quota: 3, metadata: { colour: "red" } });
    const shown = await share.getProperties();
    assert.deepEqual([shown.quota, shown.metadata], [3, { colour: "red" }]);
    await share.setProperties({ quotaInGB: 5, accessTier: "Hot" });
    await share.setMetadata({ shape: "round" });
    const after = await share.getProperties();
    assert.deepEqual([after.quota, after.accessTier, after.metadata], [5, "Hot", { shape: "round" }]);
    await newFile(share.rootDirectoryClient, "Report", "12345");
    assert.equal((await share.getStatistics()).shareUsageBytes, 5);
    await refused(share.create(), 409, "ShareAlreadyExists");
});

test("listing shares and snapshots by pages", async (t) => {
    const share = await newShare(t);
    const taken = [];
    for (const _ of [1, 2]) taken.push((await share.createSnapshot()).snapshot);
    assert.ok(taken[0] < taken[1]);
    const settings = { prefix: share.name, includeSnapshots: true, includeMetadata: true };
    const pages = [];
    for await (const page of service.listShares(settings).byPage({ maxPageSize: 2 })) {
        pages.push(page.shareItems.map(({ snapshot }) => snapshot));
    }
    assert.deepEqual(pages, [taken, [undefined]]);
    await refused(share.delete(), 409, "ShareHasSnapshots");
    await share.withSnapshot(taken[0]).delete();
    assert.equal(await share.withSnapshot(taken[0]).exists(), false);
    assert.equal((await collect(service.listShares(settings))).length, 2);
});

test("leases of shares and files", async (t) => {
    const share = await newShare(t);
    const file = await newFile(share.rootDirectoryClient, "Report", "12345");
    for (const [leased, duration] of [[file, -1], [share, 15]]) {
        const lease = leased.getShareLeaseClient();
        await lease.acquireLease(duration);
        const before = lease.leaseId;
        await lease.changeLease("ca761232-ed42-11ce-bacd-00aa0057b223");
        const other = leased.getShareLeaseClient(before);
        await refused(other.releaseLease(), 409, "LeaseIdMismatchWithLeaseOperation");
        await refused(leased.delete(), 412, "LeaseIdMissing");
        await lease.breakLease(leased === share ? { breakPeriod: 0 } : {});
        assert.equal((await leased.getProperties()).leaseState, "broken");
    }
});

test("permissions", async (t) => {
    const share = await newShare(t);
    const { filePermissionKey } = await share.createPermission(DESCRIPTOR);
    assert.match((await share.getPermission(filePermissionKey)).permission, /^O:S-1-5-21-.*D:AI/);
    const file = await newFile(share.rootDirectoryClient, "Report", "12345");
    await file.setProperties({ filePermissionKey });
    const shown = await file.getProperties();
    assert.equal(shown.filePermissionKey, filePermissionKey);
});

test("handles", async (t) => {
    const share = await newShare(t);
    const file = await newFile(share.rootDirectoryClient, "Report", "12345");
    assert.deepEqual(await collect(file.listHandles()), []);
    assert.deepEqual(await collect(share.rootDirectoryClient.listHandles({ recursive: true })), []);
    const closed = await share.rootDirectoryClient.forceCloseAllHandles({ recursive: true });
    assert.equal(closed.closedHandlesCount, 0);
});
