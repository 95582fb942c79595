// Rehydration from the archive, on a server where it does not end during a test.

import assert from "node:assert/strict";
import test from "node:test";

import { collect, newBlob, refused, service } from "../clients.mjs";

test("pending rehydration", async (t) => {
    const blob = await newBlob(t);
    await blob.setAccessTier("Archive");
    const set = await blob.setAccessTier("Cool", { rehydratePriority: "High" });
    assert.equal(set._response.status, 202);
    const container = service.getContainerClient(blob.containerName);
    const [{ properties }] = await collect(container.listBlobsFlat());
    for (const shown of [await blob.getProperties(), properties]) {
        assert.equal(shown.accessTier, "Archive");
        assert.equal(shown.archiveStatus, "rehydrate-pending-to-cool");
        assert.equal(shown.rehydratePriority, "High");
    }
    await refused(blob.download(), 409, "BlobBeingRehydrated");
});
