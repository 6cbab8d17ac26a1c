// An authorization server: the certified oidc-provider with the features that the tests need. Its
// first argument is its configuration as JSON:
//
//   path       the path of the issuer, "" or for example "/realm"
//   clients    clients without dynamic registration
//   documents  client metadata documents by URL, which the server can fetch
//
// It prints its issuer, and exits at the end of its standard input.
//
// A resource is any URL on this machine. The first segment of its path is the format of its access
// tokens: "opaque", "short" for tokens that are valid for one second, "stale" for tokens that have
// expired when they are issued; all others are JWTs.
//
// POST /remove?token=… deletes an access token but, unlike a revocation, not its refresh token.
// POST /remove?client=… deletes a registered client, like a restart without a database.
//
// The browser's cookie "user" names the user. Users consent to everything, except the user nobody,
// who denies consent.

import { once } from 'node:events';
import { generateKeyPairSync, randomBytes } from 'node:crypto';
import { createServer } from 'node:http';
import Provider from 'oidc-provider';

const { path, clients, documents } = JSON.parse(process.argv[2]);

const server = createServer();
server.listen(0, '127.0.0.1');
await once(server, 'listening');
const issuer = `http://127.0.0.1:${server.address().port}${path}`;

const { privateKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' });
const key = { ...privateKey.export({ format: 'jwk' }), alg: 'ES256', use: 'sig', kid: 'issuer-1' };

// format returns the format of the access tokens of a resource.
const format = (resource) => new URL(resource).pathname.split('/')[1];

const provider = new Provider(issuer, {
  clients,
  jwks: { keys: [key] },
  cookies: { keys: [randomBytes(32).toString('hex')] },
  clientDefaults: { id_token_signed_response_alg: 'ES256' },
  enabledJWA: { idTokenSigningAlgValues: ['ES256'] },
  scopes: ['openid', 'offline_access'],
  findAccount: (_ctx, id) => ({ accountId: id, claims: () => ({ sub: id }) }),
  interactions: { url: (_ctx, interaction) => `${path}/interaction/${interaction.uid}` },
  fetch: async (url) => {
    const document = documents[url];
    return document === undefined
      ? new Response('', { status: 404 })
      : new Response(JSON.stringify(document), { headers: { 'content-type': 'application/json' } });
  },
  formats: {
    customizers: {
      jwt(_ctx, token, parts) {
        if (format(token.aud) === 'stale') {
          parts.payload.iat -= 7200;
          parts.payload.exp = parts.payload.iat + 3600;
        }
      },
    },
  },
  features: {
    devInteractions: { enabled: false },
    clientCredentials: { enabled: true },
    clientIdMetadataDocument: { enabled: true, ack: 'draft-02' },
    dPoP: { enabled: true, nonceSecret: randomBytes(32), requireNonce: () => true },
    introspection: { enabled: true },
    pushedAuthorizationRequests: { enabled: true },
    registration: { enabled: true },
    revocation: { enabled: true },
    resourceIndicators: {
      enabled: true,
      getResourceServerInfo: (_ctx, resource) => ({
        scope: 'mcp:read mcp:write mcp:admin',
        accessTokenTTL: format(resource) === 'short' ? 1 : 600,
        accessTokenFormat: format(resource) === 'opaque' ? 'opaque' : 'jwt',
        jwt: { sign: { alg: 'ES256' } },
      }),
    },
  },
});

// interact performs the user's login and consent.
async function interact(req, res) {
  const { prompt, params, session, grantId } = await provider.interactionDetails(req, res);
  const user = /(?:^|;\s*)user=(\w+)/.exec(req.headers.cookie ?? '')?.[1];
  if (user === undefined || user === 'nobody') {
    await provider.interactionFinished(req, res, { error: 'access_denied', error_description: 'the user denied consent' });
    return;
  }
  if (prompt.name === 'login') {
    await provider.interactionFinished(req, res, { login: { accountId: user } });
    return;
  }
  const grant = grantId
    ? await provider.Grant.find(grantId)
    : new provider.Grant({ accountId: session.accountId, clientId: params.client_id });
  const { missingOIDCScope, missingResourceScopes } = prompt.details;
  if (missingOIDCScope) {
    grant.addOIDCScope(missingOIDCScope.join(' '));
  }
  for (const [resource, scopes] of Object.entries(missingResourceScopes ?? {})) {
    grant.addResourceScope(resource, scopes.join(' '));
  }
  await provider.interactionFinished(req, res, { consent: { grantId: await grant.save() } });
}

// remove deletes an access token or a client.
async function remove(query, res) {
  if (query.has('client')) {
    await provider.Client.adapter.destroy(query.get('client'));
  } else {
    await (await provider.AccessToken.find(query.get('token'))).destroy();
  }
  res.writeHead(204).end();
}

const callback = provider.callback();
const interaction = new RegExp(`^${path}/interaction/[\\w-]+$`);
provider.on('server_error', (_ctx, err) => console.error(err));
provider.on('grant.error', (_ctx, err) => console.error(err.message, err.error_detail));

server.on('request', (req, res) => {
  const failed = (err) => {
    console.error(err);
    res.writeHead(500).end();
  };
  const { pathname, searchParams } = new URL(req.url, issuer);
  if (interaction.test(pathname)) {
    interact(req, res).catch(failed);
    return;
  }
  if (pathname === `${path}/remove`) {
    remove(searchParams, res).catch(failed);
    return;
  }
  if (path !== '' && !req.url.startsWith(`${path}/`)) {
    res.writeHead(404).end();
    return;
  }
  req.originalUrl = req.url;
  req.url = req.url.slice(path.length);
  callback(req, res);
});

console.log(issuer);
process.stdin.resume();
process.stdin.on('end', () => process.exit(0));
