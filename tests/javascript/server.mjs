// Clients for the server that the tests are given, and what they say again and again.

import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";

import { BlobServiceClient } from "@azure/storage-blob";

export const MIB = 1024 * 1024;
export const HOUR_MS = 60 * 60 * 1000;
export const OTHER_ETAG = '"0x8D0000000000001"';

// Without retries: every answer counts.
export const options = { retryOptions: { maxTries: 1 } };

export const service = BlobServiceClient.fromConnectionString(
    process.env.AZURE_STORAGE_CONNECTION_STRING,
    options,
);

let number = 0;

export function unique(prefix = "container") {
    number += 1;
    return `${prefix}-${process.pid}-${number}`;
}

/** A container that ends with its test, also when it is leased. */
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

/** The error of a request that is refused with just this. */
export async function refused(request, statusCode, code) {
    const error = await request.then(
        () => assert.fail(`it was not refused with ${statusCode} ${code}`),
        (reason) => reason,
    );
    assert.equal(error.name, "RestError", error);
    // An answer without a body names its code in a header only.
    const told = { statusCode: error.statusCode, code: error.code ?? error.details?.errorCode };
    assert.deepEqual(told, { statusCode, code }, error);
    return error;
}

export async function collect(items) {
    const found = [];
    for await (const item of items) found.push(item);
    return found;
}

export const contentOf = (size) => randomBytes(size);

export async function text(response) {
    return (await bytes(response)).toString();
}

export async function bytes(response) {
    return Buffer.concat(await collect(response.readableStreamBody));
}

/** A moment some milliseconds before (or after) another. */
export const shifted = (moment, milliseconds) => new Date(moment.getTime() + milliseconds);
export const fromNow = (milliseconds) => shifted(new Date(), milliseconds);

/** In the order of their UTF-8, as listings are; JavaScript by itself compares UTF-16. */
export const inOrder = (names) =>
    [...names].sort((one, other) => Buffer.compare(Buffer.from(one), Buffer.from(other)));
