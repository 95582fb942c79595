// Blob clients for the server under test.

import { randomBytes } from "node:crypto";

import { BlobServiceClient } from "@azure/storage-blob";

import { collect, nextNumber } from "../harness.mjs";

export * from "../harness.mjs";

export const MIB = 1024 * 1024;
export const OTHER_ETAG = '"0x8D0000000000001"';

// No retries: a test must see every response.
export const options = { retryOptions: { maxTries: 1 } };

export const service = BlobServiceClient.fromConnectionString(
    process.env.AZURE_STORAGE_CONNECTION_STRING,
    options,
);

export const unique = (prefix = "container") => `${prefix}-${process.pid}-${nextNumber()}`;

/** Creates a container that is deleted after the test, even if it is leased. */
export async function newContainer(t, settings = {}) {
    const container = service.getContainerClient(unique());
    await container.create(settings);
    t.after(() => remove(container));
    return container;
}

export async function remove(container) {
    if (!(await container.exists())) return;
    const { leaseStatus } = await container.getProperties();
    if (leaseStatus === "locked") await container.getBlobLeaseClient().breakLease(0);
    await container.delete();
}

export async function newBlob(t, content = "content", settings = {}) {
    const container = await newContainer(t);
    const blob = container.getBlockBlobClient("blob");
    await blob.upload(content, Buffer.byteLength(content), settings);
    return blob;
}

export const contentOf = (size) => randomBytes(size);

export async function text(response) {
    return (await bytes(response)).toString();
}

export async function bytes(response) {
    return Buffer.concat(await collect(response.readableStreamBody));
}

/** Sorts names by their UTF-8 bytes, as listings do; JavaScript itself compares UTF-16. */
export const inOrder = (names) =>
    [...names].sort((one, other) => Buffer.compare(Buffer.from(one), Buffer.from(other)));
