CREATE TABLE public.cell (
    model integer NOT NULL,
    tier integer NOT NULL,
    start bigint NOT NULL,
    kind text NOT NULL,
    dimension text NOT NULL,
    "group" text NOT NULL,
    count bigint NOT NULL,
    unmeasured bigint NOT NULL,
    flips bigint NOT NULL,
    infinite bigint NOT NULL,
    sum double precision NOT NULL,
    kl double precision NOT NULL,
    max double precision NOT NULL,
    histogram bytea NOT NULL
);
CREATE TABLE public.model (
    id integer NOT NULL,
    name text NOT NULL,
    digest text NOT NULL,
    trained_with_mask boolean NOT NULL,
    last_time double precision NOT NULL
);
CREATE SEQUENCE public.model_id_seq
    AS integer
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE public.model_id_seq OWNED BY public.model.id;
CREATE TABLE public."position" (
    id bigint NOT NULL,
    model integer NOT NULL,
    "time" double precision NOT NULL,
    fen text NOT NULL,
    chess960 boolean NOT NULL,
    turn text NOT NULL,
    in_check boolean NOT NULL,
    phase text NOT NULL,
    legal_moves integer NOT NULL,
    elo double precision,
    leakage text NOT NULL
);
CREATE SEQUENCE public.position_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE public.position_id_seq OWNED BY public."position".id;
CREATE TABLE public.schema_version (
    version integer NOT NULL
);
CREATE TABLE public.worst (
    kind text NOT NULL,
    value double precision NOT NULL,
    model integer NOT NULL,
    "time" double precision NOT NULL,
    fen text NOT NULL,
    chess960 boolean NOT NULL,
    turn text NOT NULL,
    in_check boolean NOT NULL,
    phase text NOT NULL,
    legal_moves integer NOT NULL,
    elo double precision,
    leakage text NOT NULL
);
ALTER TABLE ONLY public.model ALTER COLUMN id SET DEFAULT nextval('public.model_id_seq'::regclass);
ALTER TABLE ONLY public."position" ALTER COLUMN id SET DEFAULT nextval('public.position_id_seq'::regclass);
INSERT INTO public.cell VALUES (1, 600, 1700049600, 'multiplied', 'all', '', 2, 0, 0, 0, 0.002, 0, 0.001, '\x0200000000007505');
INSERT INTO public.cell VALUES (1, 600, 1700049600, 'raw', 'all', '', 2, 0, 0, 0, 0.26, 0.26, 0.25, '\x010000000000e9050100000000008c06');
INSERT INTO public.cell VALUES (1, 600, 1700049600, 'raw', 'cause', 'blocked', 2, 0, 0, 0, 0.26, 0, 0.25, '\x010000000000e9050100000000008c06');
INSERT INTO public.cell VALUES (1, 600, 1700049600, 'multiplied', 'elo', '1400-1599', 2, 0, 0, 0, 0.002, 0, 0.001, '\x0200000000007505');
INSERT INTO public.cell VALUES (1, 600, 1700049600, 'raw', 'elo', '1400-1599', 2, 0, 0, 0, 0.26, 0.26, 0.25, '\x010000000000e9050100000000008c06');
INSERT INTO public.cell VALUES (1, 600, 1700049600, 'multiplied', 'in_check', 'false', 2, 0, 0, 0, 0.002, 0, 0.001, '\x0200000000007505');
INSERT INTO public.cell VALUES (1, 600, 1700049600, 'raw', 'in_check', 'false', 2, 0, 0, 0, 0.26, 0.26, 0.25, '\x010000000000e9050100000000008c06');
INSERT INTO public.cell VALUES (1, 600, 1700049600, 'multiplied', 'legal_moves', '20-29', 2, 0, 0, 0, 0.002, 0, 0.001, '\x0200000000007505');
INSERT INTO public.cell VALUES (1, 600, 1700049600, 'raw', 'legal_moves', '20-29', 2, 0, 0, 0, 0.26, 0.26, 0.25, '\x010000000000e9050100000000008c06');
INSERT INTO public.cell VALUES (1, 600, 1700049600, 'multiplied', 'phase', 'opening', 2, 0, 0, 0, 0.002, 0, 0.001, '\x0200000000007505');
INSERT INTO public.cell VALUES (1, 600, 1700049600, 'raw', 'phase', 'opening', 2, 0, 0, 0, 0.26, 0.26, 0.25, '\x010000000000e9050100000000008c06');
INSERT INTO public.cell VALUES (1, 600, 1700049600, 'multiplied', 'side', 'white', 2, 0, 0, 0, 0.002, 0, 0.001, '\x0200000000007505');
INSERT INTO public.cell VALUES (1, 600, 1700049600, 'raw', 'side', 'white', 2, 0, 0, 0, 0.26, 0.26, 0.25, '\x010000000000e9050100000000008c06');
INSERT INTO public.cell VALUES (1, 0, 0, 'multiplied', 'all', '', 2, 0, 0, 0, 0.002, 0, 0.001, '\x0200000000007505');
INSERT INTO public.cell VALUES (1, 0, 0, 'raw', 'all', '', 2, 0, 0, 0, 0.26, 0.26, 0.25, '\x010000000000e9050100000000008c06');
INSERT INTO public.cell VALUES (1, 0, 0, 'raw', 'cause', 'blocked', 2, 0, 0, 0, 0.26, 0, 0.25, '\x010000000000e9050100000000008c06');
INSERT INTO public.cell VALUES (1, 0, 0, 'multiplied', 'elo', '1400-1599', 2, 0, 0, 0, 0.002, 0, 0.001, '\x0200000000007505');
INSERT INTO public.cell VALUES (1, 0, 0, 'raw', 'elo', '1400-1599', 2, 0, 0, 0, 0.26, 0.26, 0.25, '\x010000000000e9050100000000008c06');
INSERT INTO public.cell VALUES (1, 0, 0, 'multiplied', 'in_check', 'false', 2, 0, 0, 0, 0.002, 0, 0.001, '\x0200000000007505');
INSERT INTO public.cell VALUES (1, 0, 0, 'raw', 'in_check', 'false', 2, 0, 0, 0, 0.26, 0.26, 0.25, '\x010000000000e9050100000000008c06');
INSERT INTO public.cell VALUES (1, 0, 0, 'multiplied', 'legal_moves', '20-29', 2, 0, 0, 0, 0.002, 0, 0.001, '\x0200000000007505');
INSERT INTO public.cell VALUES (1, 0, 0, 'raw', 'legal_moves', '20-29', 2, 0, 0, 0, 0.26, 0.26, 0.25, '\x010000000000e9050100000000008c06');
INSERT INTO public.cell VALUES (1, 0, 0, 'multiplied', 'phase', 'opening', 2, 0, 0, 0, 0.002, 0, 0.001, '\x0200000000007505');
INSERT INTO public.cell VALUES (1, 0, 0, 'raw', 'phase', 'opening', 2, 0, 0, 0, 0.26, 0.26, 0.25, '\x010000000000e9050100000000008c06');
INSERT INTO public.cell VALUES (1, 0, 0, 'multiplied', 'side', 'white', 2, 0, 0, 0, 0.002, 0, 0.001, '\x0200000000007505');
INSERT INTO public.cell VALUES (1, 0, 0, 'raw', 'side', 'white', 2, 0, 0, 0, 0.26, 0.26, 0.25, '\x010000000000e9050100000000008c06');
INSERT INTO public.cell VALUES (3, 600, 1700049600, 'raw', 'all', '', 1, 0, 0, 0, 0.5, 0.5, 0.5, '\x010000000000af06');
INSERT INTO public.cell VALUES (3, 600, 1700049600, 'raw', 'phase', 'opening', 1, 0, 0, 0, 0.5, 0.5, 0.5, '\x010000000000af06');
INSERT INTO public.cell VALUES (3, 600, 1700049600, 'raw', 'side', 'black', 1, 0, 0, 0, 0.5, 0.5, 0.5, '\x010000000000af06');
INSERT INTO public.cell VALUES (3, 600, 1700049600, 'raw', 'in_check', 'false', 1, 0, 0, 0, 0.5, 0.5, 0.5, '\x010000000000af06');
INSERT INTO public.cell VALUES (3, 600, 1700049600, 'raw', 'legal_moves', '20-29', 1, 0, 0, 0, 0.5, 0.5, 0.5, '\x010000000000af06');
INSERT INTO public.cell VALUES (3, 600, 1700049600, 'raw', 'elo', 'unknown', 1, 0, 0, 0, 0.5, 0.5, 0.5, '\x010000000000af06');
INSERT INTO public.cell VALUES (3, 600, 1700049600, 'multiplied', 'all', '', 1, 0, 0, 0, 0.001, 0, 0.001, '\x0100000000007505');
INSERT INTO public.cell VALUES (3, 600, 1700049600, 'multiplied', 'phase', 'opening', 1, 0, 0, 0, 0.001, 0, 0.001, '\x0100000000007505');
INSERT INTO public.cell VALUES (3, 600, 1700049600, 'multiplied', 'side', 'black', 1, 0, 0, 0, 0.001, 0, 0.001, '\x0100000000007505');
INSERT INTO public.cell VALUES (3, 600, 1700049600, 'multiplied', 'in_check', 'false', 1, 0, 0, 0, 0.001, 0, 0.001, '\x0100000000007505');
INSERT INTO public.cell VALUES (3, 600, 1700049600, 'multiplied', 'legal_moves', '20-29', 1, 0, 0, 0, 0.001, 0, 0.001, '\x0100000000007505');
INSERT INTO public.cell VALUES (3, 600, 1700049600, 'multiplied', 'elo', 'unknown', 1, 0, 0, 0, 0.001, 0, 0.001, '\x0100000000007505');
INSERT INTO public.cell VALUES (3, 0, 0, 'raw', 'all', '', 1, 0, 0, 0, 0.5, 0.5, 0.5, '\x010000000000af06');
INSERT INTO public.cell VALUES (3, 0, 0, 'raw', 'phase', 'opening', 1, 0, 0, 0, 0.5, 0.5, 0.5, '\x010000000000af06');
INSERT INTO public.cell VALUES (3, 0, 0, 'raw', 'side', 'black', 1, 0, 0, 0, 0.5, 0.5, 0.5, '\x010000000000af06');
INSERT INTO public.cell VALUES (3, 0, 0, 'raw', 'in_check', 'false', 1, 0, 0, 0, 0.5, 0.5, 0.5, '\x010000000000af06');
INSERT INTO public.cell VALUES (3, 0, 0, 'raw', 'legal_moves', '20-29', 1, 0, 0, 0, 0.5, 0.5, 0.5, '\x010000000000af06');
INSERT INTO public.cell VALUES (3, 0, 0, 'raw', 'elo', 'unknown', 1, 0, 0, 0, 0.5, 0.5, 0.5, '\x010000000000af06');
INSERT INTO public.cell VALUES (3, 0, 0, 'multiplied', 'all', '', 1, 0, 0, 0, 0.001, 0, 0.001, '\x0100000000007505');
INSERT INTO public.cell VALUES (3, 0, 0, 'multiplied', 'phase', 'opening', 1, 0, 0, 0, 0.001, 0, 0.001, '\x0100000000007505');
INSERT INTO public.cell VALUES (3, 0, 0, 'multiplied', 'side', 'black', 1, 0, 0, 0, 0.001, 0, 0.001, '\x0100000000007505');
INSERT INTO public.cell VALUES (3, 0, 0, 'multiplied', 'in_check', 'false', 1, 0, 0, 0, 0.001, 0, 0.001, '\x0100000000007505');
INSERT INTO public.cell VALUES (3, 0, 0, 'multiplied', 'legal_moves', '20-29', 1, 0, 0, 0, 0.001, 0, 0.001, '\x0100000000007505');
INSERT INTO public.cell VALUES (3, 0, 0, 'multiplied', 'elo', 'unknown', 1, 0, 0, 0, 0.001, 0, 0.001, '\x0100000000007505');
INSERT INTO public.model VALUES (1, 'net', 'sha256:a', false, 1700049601);
INSERT INTO public.model VALUES (3, 'other', 'sha256:b', false, 1700049600);
INSERT INTO public."position" VALUES (1, 1, 1700049600, '4k3/8/8/8/8/8/4P3/4K3 w - - 0 1', false, 'white', false, 'opening', 20, 1500, '[{"raw":[0.25,false,0.25],"multiplied":[0.001,false,0.0]},{"blocked":0.25},[["e2e5",0.25,"wrong_geometry"]]]');
INSERT INTO public."position" VALUES (2, 1, 1700049601, '8/8/8/8/8/5k2/8/5K2 w - - 0 1', false, 'white', false, 'opening', 20, 1500, '[{"raw":[0.01,false,0.01],"multiplied":[0.001,false,0.0]},{"blocked":0.01},[["e2e5",0.25,"wrong_geometry"]]]');
INSERT INTO public."position" VALUES (3, 3, 1700049600, '8/8/8/8/8/5k2/8/5K2 b - - 0 1', false, 'black', false, 'opening', 20, NULL, '[{"raw":[0.5,false,0.5],"multiplied":[0.001,false,0.0]},{},[["e2e5",0.25,"wrong_geometry"]]]');
INSERT INTO public.schema_version VALUES (3);
INSERT INTO public.worst VALUES ('raw', 0.25, 1, 1700049600, '4k3/8/8/8/8/8/4P3/4K3 w - - 0 1', false, 'white', false, 'opening', 20, 1500, '[{"raw":[0.25,false,0.25],"multiplied":[0.001,false,0.0]},{"blocked":0.25},[["e2e5",0.25,"wrong_geometry"]]]');
INSERT INTO public.worst VALUES ('multiplied', 0.001, 1, 1700049600, '4k3/8/8/8/8/8/4P3/4K3 w - - 0 1', false, 'white', false, 'opening', 20, 1500, '[{"raw":[0.25,false,0.25],"multiplied":[0.001,false,0.0]},{"blocked":0.25},[["e2e5",0.25,"wrong_geometry"]]]');
INSERT INTO public.worst VALUES ('raw', 0.01, 1, 1700049601, '8/8/8/8/8/5k2/8/5K2 w - - 0 1', false, 'white', false, 'opening', 20, 1500, '[{"raw":[0.01,false,0.01],"multiplied":[0.001,false,0.0]},{"blocked":0.01},[["e2e5",0.25,"wrong_geometry"]]]');
INSERT INTO public.worst VALUES ('multiplied', 0.001, 1, 1700049601, '8/8/8/8/8/5k2/8/5K2 w - - 0 1', false, 'white', false, 'opening', 20, 1500, '[{"raw":[0.01,false,0.01],"multiplied":[0.001,false,0.0]},{"blocked":0.01},[["e2e5",0.25,"wrong_geometry"]]]');
INSERT INTO public.worst VALUES ('raw', 0.5, 3, 1700049600, '8/8/8/8/8/5k2/8/5K2 b - - 0 1', false, 'black', false, 'opening', 20, NULL, '[{"raw":[0.5,false,0.5],"multiplied":[0.001,false,0.0]},{},[["e2e5",0.25,"wrong_geometry"]]]');
INSERT INTO public.worst VALUES ('multiplied', 0.001, 3, 1700049600, '8/8/8/8/8/5k2/8/5K2 b - - 0 1', false, 'black', false, 'opening', 20, NULL, '[{"raw":[0.5,false,0.5],"multiplied":[0.001,false,0.0]},{},[["e2e5",0.25,"wrong_geometry"]]]');
SELECT pg_catalog.setval('public.model_id_seq', 3, true);
SELECT pg_catalog.setval('public.position_id_seq', 3, true);
ALTER TABLE ONLY public.cell
    ADD CONSTRAINT cell_pkey PRIMARY KEY (model, tier, start, dimension, kind, "group");
ALTER TABLE ONLY public.model
    ADD CONSTRAINT model_name_digest_key UNIQUE (name, digest);
ALTER TABLE ONLY public.model
    ADD CONSTRAINT model_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public."position"
    ADD CONSTRAINT position_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.worst
    ADD CONSTRAINT worst_pkey PRIMARY KEY (model, kind, fen);
CREATE INDEX position_time ON public."position" USING btree ("time");
CREATE INDEX worst_value ON public.worst USING btree (model, kind, value);
ALTER TABLE ONLY public.cell
    ADD CONSTRAINT cell_model_fkey FOREIGN KEY (model) REFERENCES public.model(id);
ALTER TABLE ONLY public."position"
    ADD CONSTRAINT position_model_fkey FOREIGN KEY (model) REFERENCES public.model(id);
ALTER TABLE ONLY public.worst
    ADD CONSTRAINT worst_model_fkey FOREIGN KEY (model) REFERENCES public.model(id);
