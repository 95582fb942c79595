// Helpers that the tests of every service share.

import assert from "node:assert/strict";

export const HOUR_MS = 60 * 60 * 1000;

let count = 0;

/** Returns a number that is used once in this process. */
export function nextNumber() {
    count += 1;
    return count;
}

/** Awaits a request that must fail with this status and error code; returns its error. */
export async function refused(request, statusCode, code) {
    const error = await request.then(
        () => assert.fail(`expected ${statusCode} ${code}, but the request succeeded`),
        (reason) => reason,
    );
    assert.equal(error.name, "RestError", error);
    // Tables have a code in JSON, the other services in XML; a response without a body has only the header.
    const actual = error.details?.odataError?.code ?? error.code ?? error.details?.errorCode;
    assert.deepEqual({ statusCode: error.statusCode, code: actual }, { statusCode, code }, error);
    return error;
}

export async function collect(items) {
    const collected = [];
    for await (const item of items) collected.push(item);
    return collected;
}

/** Returns a date some milliseconds after (or before) another. */
export const shifted = (date, milliseconds) => new Date(date.getTime() + milliseconds);
export const fromNow = (milliseconds) => shifted(new Date(), milliseconds);
