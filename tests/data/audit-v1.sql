BEGIN TRANSACTION;
CREATE TABLE model (
	id INTEGER NOT NULL, 
	name TEXT NOT NULL, 
	digest TEXT NOT NULL, 
	trained_with_mask BOOLEAN NOT NULL, 
	last_time FLOAT NOT NULL, 
	PRIMARY KEY (id), 
	UNIQUE (name, digest)
);
INSERT INTO "model" VALUES(1,'net','sha256:a',0,1700000004.0);
INSERT INTO "model" VALUES(2,'other','sha256:b',1,1700000000.0);
CREATE TABLE position (
	id INTEGER NOT NULL, 
	model INTEGER NOT NULL, 
	fen TEXT NOT NULL, 
	time FLOAT NOT NULL, 
	chess960 BOOLEAN NOT NULL, 
	turn TEXT NOT NULL, 
	legal_moves INTEGER NOT NULL, 
	raw FLOAT, 
	multiplied FLOAT NOT NULL, 
	served FLOAT NOT NULL, 
	illegal TEXT NOT NULL, 
	PRIMARY KEY (id), 
	FOREIGN KEY(model) REFERENCES model (id)
);
INSERT INTO "position" VALUES(1,1,'fen 0',1700000000.0,0,'white',20,0.0,0.5,0.0,'[["e2e5", 0.25]]');
INSERT INTO "position" VALUES(2,1,'fen 1',1700000001.0,0,'white',21,0.001,0.02,0.0,'[["e2e5", 0.25]]');
INSERT INTO "position" VALUES(3,1,'fen 2',1700000002.0,0,'white',22,0.25,0.0,0.0,'[["e2e5", 0.25]]');
INSERT INTO "position" VALUES(4,1,'fen 3',1700000003.0,0,'white',23,NULL,0.125,0.0,'[["e2e5", 0.25]]');
INSERT INTO "position" VALUES(5,1,'fen 4',1700000004.0,0,'white',24,0.9,0.3,0.0,'[["e2e5", 0.25]]');
INSERT INTO "position" VALUES(6,2,'fen x',1700000000.0,0,'black',3,0.5,0.5,0.0,'[]');
CREATE TABLE schema_version (
	version INTEGER NOT NULL, 
	PRIMARY KEY (version)
);
INSERT INTO "schema_version" VALUES(1);
CREATE TABLE sketch (
	model INTEGER NOT NULL, 
	kind TEXT NOT NULL, 
	bucket INTEGER NOT NULL, 
	count INTEGER NOT NULL, 
	PRIMARY KEY (model, kind, bucket), 
	FOREIGN KEY(model) REFERENCES model (id)
)
 WITHOUT ROWID

;
INSERT INTO "sketch" VALUES(1,'multiplied',-2147483648,1);
INSERT INTO "sketch" VALUES(1,'multiplied',-195,1);
INSERT INTO "sketch" VALUES(1,'multiplied',-103,1);
INSERT INTO "sketch" VALUES(1,'multiplied',-60,1);
INSERT INTO "sketch" VALUES(1,'multiplied',-34,1);
INSERT INTO "sketch" VALUES(1,'raw',-2147483648,1);
INSERT INTO "sketch" VALUES(1,'raw',-345,1);
INSERT INTO "sketch" VALUES(1,'raw',-69,1);
INSERT INTO "sketch" VALUES(1,'raw',-5,1);
INSERT INTO "sketch" VALUES(1,'served',-2147483648,5);
INSERT INTO "sketch" VALUES(2,'multiplied',-34,1);
INSERT INTO "sketch" VALUES(2,'raw',-34,1);
INSERT INTO "sketch" VALUES(2,'served',-2147483648,1);
CREATE TABLE total (
	model INTEGER NOT NULL, 
	kind TEXT NOT NULL, 
	count INTEGER NOT NULL, 
	unmeasured INTEGER NOT NULL, 
	sum FLOAT NOT NULL, 
	max FLOAT NOT NULL, 
	PRIMARY KEY (model, kind), 
	FOREIGN KEY(model) REFERENCES model (id)
);
INSERT INTO "total" VALUES(1,'raw',4,1,1.151,0.9);
INSERT INTO "total" VALUES(1,'multiplied',5,0,9.45000000000000062172e-01,0.5);
INSERT INTO "total" VALUES(1,'served',5,0,0.0,0.0);
INSERT INTO "total" VALUES(2,'raw',1,0,0.5,0.5);
INSERT INTO "total" VALUES(2,'multiplied',1,0,0.5,0.5);
INSERT INTO "total" VALUES(2,'served',1,0,0.0,0.0);
CREATE TABLE worst (
	model INTEGER NOT NULL, 
	kind TEXT NOT NULL, 
	fen TEXT NOT NULL, 
	value FLOAT NOT NULL, 
	time FLOAT NOT NULL, 
	chess960 BOOLEAN NOT NULL, 
	turn TEXT NOT NULL, 
	legal_moves INTEGER NOT NULL, 
	raw FLOAT, 
	multiplied FLOAT NOT NULL, 
	served FLOAT NOT NULL, 
	illegal TEXT NOT NULL, 
	PRIMARY KEY (model, kind, fen), 
	FOREIGN KEY(model) REFERENCES model (id)
);
INSERT INTO "worst" VALUES(1,'raw','fen 4',0.9,1700000004.0,0,'white',24,0.9,0.3,0.0,'[["e2e5", 0.25]]');
INSERT INTO "worst" VALUES(1,'raw','fen 2',0.25,1700000002.0,0,'white',22,0.25,0.0,0.0,'[["e2e5", 0.25]]');
INSERT INTO "worst" VALUES(1,'multiplied','fen 0',0.5,1700000000.0,0,'white',20,0.0,0.5,0.0,'[["e2e5", 0.25]]');
INSERT INTO "worst" VALUES(1,'multiplied','fen 4',0.3,1700000004.0,0,'white',24,0.9,0.3,0.0,'[["e2e5", 0.25]]');
INSERT INTO "worst" VALUES(2,'raw','fen x',0.5,1700000000.0,0,'black',3,0.5,0.5,0.0,'[]');
INSERT INTO "worst" VALUES(2,'multiplied','fen x',0.5,1700000000.0,0,'black',3,0.5,0.5,0.0,'[]');
CREATE INDEX position_time ON position (time);
CREATE INDEX worst_value ON worst (model, kind, value);
COMMIT;
