/** What a person sees who opens the service in a browser. */
export const page = `<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>Pawl</title>
<h1>Pawl</h1>
<p>Durable tool-calling agent loops. This is a service for programs: <a href="/openapi.json">its description (OpenAPI 3.1)</a>.</p>
</html>
`;
